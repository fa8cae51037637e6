"""Find the scales of int8 activations, and the layers that int8 would harm, from pictures."""
