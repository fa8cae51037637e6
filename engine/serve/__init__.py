"""An HTTP server: pictures come in by POST, what is found in them goes out.

    app.py       the addresses, and what each answers; post.py takes pictures
    wish.py      what a request asks for
    body.py      the picture in a request, within limits; multipart.py finds it in a form
    service.py   pictures of many clients through one detector
    batcher.py   pictures that wait, in batches
    limits.py    what all this may cost; budget.py counts it
    server.py    the port, signals and the way out; protocol.py ends connections that ask too much

Needs the extra `serve`; importing this alone loads none of it.
"""
