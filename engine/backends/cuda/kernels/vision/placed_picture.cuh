// A picture of a run: its bytes, and its place in the network's input.
#pragma once

// runtime/picture_staging.py has the same fields.
struct PlacedPicture {
    const unsigned char* pixels;
    int width, height;
    int inner_width, inner_height;  // of the scaled picture
    int left, top;                  // its top left corner in the input, possibly negative
    float scale_x, scale_y;         // pixels of the picture per pixel of the scaled one
    int is_letterbox;               // grey around the picture instead of its repeated border
    int darkens;                    // repeat darknet's error in the bottom row
    double margin_x, margin_y;      // the free share of the input on one side
    double ratio_x, ratio_y;        // the share that the picture takes
};
