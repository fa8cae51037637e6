"""The modules of ultralytics.utils that scripts use for drawing."""
