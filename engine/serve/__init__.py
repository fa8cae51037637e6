"""An HTTP server: clients POST pictures and receive what the network found in them.

    app.py              routes, error responses and request metrics
    inference.py        POST /detect and /classify
    request_options.py  query parameters and Accept
    body.py             the request body within its limits; multipart.py extracts the file of a form
    service.py          decoding, inference and rendering for many clients with one detector
    batcher.py          dynamic batching
    server_limits.py    what requests may cost; memory_budget.py counts bytes
    rejection.py        the errors that become a status code; lingering_close.py ends a connection
    early_refusal.py    refusals of a full server, before the application is asked
    server.py           socket, signals and shutdown; protocol.py limits connections and heads
    metrics.py          Prometheus metrics

Everything here needs the extra `serve`; importing the package alone loads none of it.
"""
