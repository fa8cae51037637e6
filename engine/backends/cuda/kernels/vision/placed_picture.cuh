// A picture of a run: where its bytes are, and how it lies in its row of the network's input.
#pragma once

// backends/cuda/pictures.py has the same fields.
struct PlacedPicture {
    const unsigned char* pixels;
    int width, height;
    int inner_width, inner_height;  // of the scaled picture
    int left, top;                  // where that begins in the row, maybe before it
    float scale_x, scale_y;         // pixels of the picture for one of the scaled picture
    int is_letterbox;               // grey around the picture, not its repeated border
    int darkens;                    // darknet's fault in the bottom row
    double margin_x, margin_y;      // the free part of the row on one side
    double ratio_x, ratio_y;        // the taken part
};
