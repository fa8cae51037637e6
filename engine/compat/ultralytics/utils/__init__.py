"""The modules of ultralytics.utils that scripts draw with."""
