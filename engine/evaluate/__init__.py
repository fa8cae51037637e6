"""Score detections against ground truth.

ground truth (dataset, yolo_labels, voc_labels, coco_files) ─┐
detections   (a Result, or coco_files)                       ┴─ Example ─ score() ─ Report
"""
