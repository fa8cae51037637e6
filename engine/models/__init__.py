"""The model zoo: which networks exist, where their weights are published, and the local copies.

    registry.py        the networks that zoo.ini lists
    store.py           local weights: find, download, verify
    download.py        resumable downloads; https.py sends the requests
    trusted_hashes.py  hashes of files without a published one (trust on first use)
    file_lock.py       locks between processes

Importing the package downloads nothing; `store.pull` does.
"""
