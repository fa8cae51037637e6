"""Beyond one machine: the detector as a citizen of a Ray cluster, and under Triton.

    detect.py    Detect: batches of pictures in, rows of what is in them out, for Ray Data
    batches.py   the pictures in a batch; rows.py has what becomes of them
    assigned.py  the device and the threads that Ray gave a worker
    run.py       a run over any number of pictures: begun once, gone on with at any time
    listing.py   names → pictures; plan.py deals them into shards and keeps who is in which
    shards.py    the worker that turns a shard of pictures into a file of rows
    pool.py      workers, as many as Ray has room for
    packed.py    a model that travels to them
    storage.py   folders and files on disks and in object stores
    triton.py    the same detector behind NVIDIA's server

Needs the extra `ray`, and triton.py the extra `triton`; importing this alone loads neither.
"""
