"""An HTTP server: clients POST pictures and receive what the network found in them.

    app.py              routes, error responses and request metrics
    upload_endpoint.py  the steps that every request with a body takes
    inference.py        POST /detect, /classify and /picture
    live.py             cameras, streams and videos that run all the time
    live_endpoints.py   GET /sources
    darknet_ports.py    the same for clients of darknet, on ports of their own
    kserve.py           the Open Inference Protocol, /v2
    openapi.py          the description of all routes
    request_options.py  settings and Accept
    body.py             the request body within its limits
    uploads.py          the pictures in a body: a form (multipart.py) or JSON
    remote_pictures.py  pictures that clients name by URL
    access.py           token, origins and the access log
    page/               the page at / and the one at /docs
    service.py          decoding, inference and rendering for many clients with one detector
    batcher.py          dynamic batching
    server_limits.py    what requests may cost; memory_budget.py counts bytes
                        (pictures are decoded by the processes of vision/decode_pool.py)
    allocator.py        settings of the C library
    rejection.py        the errors that become a status code
    early_refusal.py    refusals of a full server, before the application is asked
    server.py           socket, signals and shutdown; protocol.py limits connections and heads
    metrics.py          Prometheus metrics

Everything here needs the extra `serve`; importing the package alone loads none of it.
"""
