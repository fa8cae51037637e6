"""Score what was found in pictures against what is there.

ground truth (listing, yolo_labels, voc_labels, coco_files) ─┐
detections   (a Result, or coco_files)                       ┴─ Example ─ score() ─ Report
"""
