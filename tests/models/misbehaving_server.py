"""A local server that answers each request as a test prescribes, correctly or not."""

from __future__ import annotations

import ssl
import threading
import time
from collections import defaultdict
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY = bytes(range(251)) * 797  # 200,047 bytes
TAG = '"one"'


class Server:
    """A server that uses `answers[path]` in order and repeats the last one."""

    def __init__(self):
        self.answers = defaultdict(list)
        self.requests = []  # (path, headers)
        self.released = threading.Event()  # releases stalled answers
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                owner.requests.append((self.path, self.headers))
                self.close_connection = True
                answers = owner.answers[self.path]
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                with suppress(ConnectionError):
                    answer(self)

            def log_message(self, *arguments):
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def encrypt(self, certificate):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        plain = self._server.socket
        self._server.socket = context.wrap_socket(
            plain, server_side=True, do_handshake_on_connect=False
        )

    def address(self, path="/net.weights"):
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    def asked_ranges(self, path="/net.weights"):
        return [headers["Range"] for asked, headers in self.requests if asked == path]

    def close(self):
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def send(handler, body, status=200, length=None, **headers):
    """Send a body with `length` in the header; None sends its true length."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    for key, value in headers.items():
        handler.send_header(key.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def whole(handler, body=BODY):
    """Answer correctly, but ignore Range."""
    send(handler, body, ETag=TAG)


def ranged(handler, body=BODY, tag=TAG):
    """Answer correctly."""
    asked = handler.headers["Range"]
    if not asked or handler.headers.get("If-Range", tag) != tag:
        return send(handler, body, ETag=tag)
    start = int(asked.removeprefix("bytes=").removesuffix("-"))
    where = f"bytes {start}-{len(body) - 1}/{len(body)}"
    return send(handler, body[start:], 206, ETag=tag, Content_Range=where)


def cut_after(count):
    def answer(handler):
        start = handler.headers["Range"] or "bytes=0-"
        start = int(start.removeprefix("bytes=").removesuffix("-"))
        part = BODY[start : start + count]
        where = f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"
        extra = {"Content_Range": where} if start else {}
        send(handler, part, 206 if start else 200, len(BODY) - start, ETag=TAG, **extra)

    return answer


def stall_after(count, server):
    def answer(handler):
        send(handler, BODY[:count], length=len(BODY), ETag=TAG)
        server.released.wait(20)

    return answer


def drip(handler):
    send(handler, b"", length=len(BODY), ETag=TAG)
    for index in range(len(BODY)):
        handler.wfile.write(BODY[index : index + 1])
        time.sleep(0.01)


def status(code, reason=None):
    def answer(handler):
        handler.send_response(code, reason)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def redirect(address):
    def answer(handler):
        send(handler, b"", 302, Location=address)

    return answer


def web_page(handler):
    send(handler, b"<html>Quota exceeded</html>", Content_Type="text/html; charset=utf-8")


def says_length(length):
    return lambda handler: send(handler, BODY, length=length)


def chunked(handler, body=BODY, *, ends=True):
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for start in range(0, len(body), 65536):
        piece = body[start : start + 65536]
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    if ends:
        handler.wfile.write(b"0\r\n\r\n")


def another_part(handler):
    send(handler, BODY[10:], 206, Content_Range=f"bytes 10-{len(BODY) - 1}/{len(BODY)}")


def encoded(handler):
    send(handler, BODY, Content_Encoding="gzip")
