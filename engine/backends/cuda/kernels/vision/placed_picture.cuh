// A picture of a run: where its bytes are, and its place in the network's input.
#pragma once

// runtime/picture_staging.py has the same fields.
struct PlacedPicture {
    const unsigned char* pixels;  // the top left pixel of the upright picture
    int width, height;
    int inner_width, inner_height;  // of the scaled picture
    int left, top;                  // its top left corner in the input, possibly negative
    float scale_x, scale_y;         // pixels of the picture per pixel of the scaled one
    int is_letterbox;               // grey around the picture instead of its repeated border
    int darkens;                    // repeat darknet's error in the bottom row
    int row_step, column_step;      // bytes to the pixel below and to the one on the right, either sign
    double margin_x, margin_y;      // the free share of the input on one side
    double ratio_x, ratio_y;        // the share that the picture takes
};
