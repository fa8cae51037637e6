"""Detection on a Ray cluster, and the detector as a model of Triton Inference Server.

    detection_run.py  a resumable run over any number of pictures
    listing.py        the pictures that names, Parquet files and object stores hold
    shard_plan.py     which picture belongs to which shard
    shard_files.py    the worker that turns a shard of pictures into a file of rows
    worker_pool.py    the Ray session and its workers
    ray_resources.py  the device and the threads that Ray assigned to a worker
    packed_model.py   a model as bytes, to be sent to the workers
    storage.py        files and folders on disks and in object stores
    detect.py         Detect: a class for Ray Data's map_batches
    batches.py        the pictures in a batch of Ray Data; rows.py has the table of their results
    triton.py         the detector as a model of Triton Inference Server

Everything here needs the extra `ray`, and triton.py the extra `triton`; importing the package alone
loads neither.
"""
