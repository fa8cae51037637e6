"""Several pictures a request, JSON, KServe's protocol, tokens, origins, URLs and the access log."""

import base64
import json
import re
import socket
import struct
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from engine.errors import InputError
from engine.settings import Settings
from engine.vision.hide import hidden_classes
from tests.serve.running import load, serving, until
from tests.serve.test_limits import encoded, noise

from engine.serve import multipart, remote_pictures  # isort: skip - `running` skips this without the extra
from engine.serve import access, request_options  # isort: skip
from engine.serve.access import Access, AccessLog  # isort: skip
from engine.serve.rejection import RejectedError  # isort: skip

JSON = {"Content_Type": "application/json"}
FORM = "multipart/form-data; boundary=cut"


def text(content):
    return base64.b64encode(content).decode()


def post(server, path, document, **headers):
    return server.post(path, json.dumps(document).encode(), **JSON, **headers)


def boxes(entry):
    return [(each["label"], each["score"], tuple(each["box"].values())) for each in entry]


def form(*files):
    parts = [
        b'--cut\r\nContent-Disposition: form-data; name="image"; filename="%s"\r\n\r\n%s\r\n'
        % (name.encode(), content)
        for name, content in files
    ]
    return b"".join(parts) + b"--cut--\r\n"


# ------------------------------------------------------------ several pictures and JSON


def test_json_brings_a_picture_and_settings(server, model, pictures):
    document = {
        "data": text(pictures[0]),
        "name": "a.png",
        "threshold": 0.35,
        "classes": ["cat", 1],
    }
    reply = post(server, "/detect", document)
    assert (reply.status, reply.found["path"]) == (200, "a.png")
    with load(model, threshold=0.35) as detector:
        found = [each for each in detector(pictures[0]) if each.label in ("cat", "dog")]
    assert [each["label"] for each in reply.found["detections"]] == [each.label for each in found]
    lines = {"data": base64.encodebytes(pictures[0]).decode()}
    assert post(server, "/detect?threshold=0.35", lines).status == 200
    data_url = {"data": "data:image/png;base64," + text(pictures[0])}
    reply = post(server, "/detect?threshold=0.35", data_url, Accept="image/jpeg")
    assert reply.content.startswith(b"\xff\xd8")


@pytest.mark.parametrize(
    ("value", "number"), [("1", 0), (["1"], 0), (1, 1), ([1], 1), ("2", 2), (" cow", 2)]
)
def test_text_names_a_class_before_it_numbers_one(value, number):
    options = request_options.parse(
        [("classes", value), ("blur", value)],
        None,
        defaults=Settings(),
        labels=("1", "0", "cow"),
        has_boxes=True,
    )
    assert options.settings.classes == (number,)
    assert hidden_classes("blur", options.hiding["blur"], ("1", "0", "cow")) == {number}


def test_a_name_in_rfc_2231_is_that_of_a_file():
    content = form(("x.png", b"pixels")).replace(
        b'filename="x.png"', b"filename*=UTF-8''a%20%C3%A4.png"
    )
    assert multipart.parse(content, FORM).files == [(b"pixels", "a ä.png")]
    for charset in (b"idna", b"undefined", b"a\0b"):
        with pytest.raises(RejectedError, match="multipart: expected a file, got none"):
            multipart.parse(content.replace(b"UTF-8", charset), FORM)


@pytest.mark.parametrize(
    "preamble",
    [
        b"This is a message of several parts.\r\n",
        b"\r\n- a list\r\n- of two\r\n",
        b"a --cut inside a line\r\n--cutting is not the boundary\r\n--cut  x\r\n",
        b"\r\n",
        b"text\n",  # RFC 2046 wants \r\n
        b"\n\n",
        b"",
    ],
)
@pytest.mark.parametrize("padding", [b"", b" \t"])
def test_a_preamble_and_padding_of_a_form_are_skipped(preamble, padding):
    content = form(("a.png", b"pixels\r\n--cu"), ("b.png", b"more"))
    sent = preamble + content.replace(b"--cut\r\n", b"--cut" + padding + b"\r\n", 1)
    found = multipart.parse(sent, FORM)
    assert found.files == [(b"pixels\r\n--cu", "a.png"), (b"more", "b.png")]


@pytest.mark.parametrize(
    ("before", "line_end"), [(b"text", b"\r\n"), (b"", b"\n"), (b"\r\n", b"\n")]
)
def test_a_first_boundary_that_is_no_line_loses_no_part(before, line_end):
    content = form(("a.png", b"pixels"), ("b.png", b"more"))
    sent = before + content.replace(b"--cut\r\n", b"--cut" + line_end, 1)
    with pytest.raises(RejectedError, match="multipart: cannot be read"):
        multipart.parse(sent, FORM)


def test_text_that_names_the_boundary_again_and_again_takes_little_time():
    start = time.perf_counter()
    with pytest.raises(RejectedError, match="multipart: cannot be read"):
        multipart.parse(b"\n--cut x" * 2_000_000, FORM)
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("as_form", [True, False])
def test_several_pictures_are_answered_in_order(server, pictures, as_form):
    files = [(f"{number}.png", content) for number, content in enumerate(pictures)]
    files.insert(2, ("broken.png", b"no picture"))
    if as_form:
        reply = server.post("/detect", form(*files), Content_Type=FORM)
    else:
        images = [{"data": text(content), "name": name} for name, content in files]
        reply = post(server, "/detect", {"images": images})
    assert reply.status == 200
    assert (reply.found["version"], reply.found["model"]) == (1, "net")
    entries = reply.found["images"]
    assert [each["path"] for each in entries] == [name for name, _ in files]
    assert entries.pop(2)["error"].startswith("picture: expected JPEG")
    for entry, content in zip(entries, pictures, strict=True):
        alone = server.post("/detect", content).found["detections"]
        assert boxes(entry["detections"]) == boxes(alone)
    until(server.holds_nothing)


def test_pictures_of_one_request_do_not_wait_for_each_other(detector):
    picture = encoded_picture()  # two of them exceed the memory
    with serving(detector, memory_bytes=4 << 20) as server:
        reply = server.post("/detect", form(*[("a.png", picture)] * 6), Content_Type=FORM)
        assert [len(each["detections"]) >= 0 for each in reply.found["images"]] == [True] * 6
        until(server.holds_nothing)


def encoded_picture():
    from PIL import Image

    return encoded(Image.new("L", (350, 350)))


def test_more_pictures_than_the_queue_holds_are_refused(detector, pictures):
    with serving(detector, queue=3) as server:
        files = [("a.png", pictures[0])] * 4
        reply = server.post("/detect", form(*files), Content_Type=FORM)
        assert (reply.status, reply.error) == (413, "pictures: expected at most 3, got 4")
        assert server.post("/detect", form(*files[:3]), Content_Type=FORM).status == 200
        until(server.holds_nothing)


@pytest.mark.parametrize(("count", "status"), [(300, 200), (1025, 413)])
def test_a_form_may_have_as_many_pictures_as_json(detector, count, status):
    with serving(detector, queue=2000) as server:
        body = form(*[("a.png", b"")] * count)
        reply = server.post("/detect", body, Content_Type=FORM)
        assert reply.status == status
        if status == 413:
            assert reply.error == "pictures: expected at most 1024, got 1025"
        else:
            assert len(reply.found["images"]) == count


def test_base64_counts_towards_the_memory_limit(detector):
    content = noise(900, 300)
    with serving(detector, memory_bytes=10 << 20) as server:
        assert server.post("/detect", content).status == 200
        reply = post(server, "/detect", {"data": text(content)})
        assert (reply.status, reply.error[:5]) == (413, "body:")
        until(server.holds_nothing)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"{", "body: cannot be read as JSON"),
        (b"[" * 100_000, "body: cannot be read as JSON"),
        (b"[]", "body: expected a JSON object, got an empty list"),
        (b"{}", "body: expected data (base64) or url, got none"),
        (b'{"dta": "AAAA"}', "body: expected data (base64) or url, got dta. Did you mean 'data'?"),
        (b'{"threshold": 1, "image": []}', "got threshold, image. Did you mean 'images'?"),
        (b'{"data": "AAAA", "url": "http://x"}', "got both"),
        (b'{"data": 3}', "body: data: expected a picture in base64, got 3"),
        (b'{"data": "@@"}', "got other text"),
        (b'{"data": ""}', "got nothing"),
        (b'{"images": []}', "images: expected a list of pictures, got an empty list"),
        (b'{"images": [3]}', "images[0]: expected an object or base64, got 3"),
        (b'{"images": [{"dta": ""}]}', "images[0]: dta: expected data, url, name"),
        (b'{"images": ["AAAA"], "data": "AAAA"}', "data: expected in an entry of images"),
        (b'{"data": "AAAA", "threshold": true}', "threshold: expected a number, got true"),
        (b'{"data": "AAAA", "nms": null}', "nms: expected a number, got null"),
        (b'{"data": "AAAA", "read": []}', "read: expected true or false, got an empty list"),
        (b'{"data": "AAAA", "threshold": 7}', "threshold"),
        (b'{"data": "AAAA", "max_detections": 1.5}', "max_detections: expected an integer"),
        (b'{"data": "AAAA", "classes": [null]}', "classes: expected names or numbers"),
        (b'{"data": "AAAA", "classes": [-1]}', "classes: expected a number below 3, got -1"),
        (b'{"data": "AAAA", "treshold": 1}', "treshold: expected threshold"),
        (b'{"url": "http://127.0.0.1/"}', "without --allow-urls"),
    ],
)
def test_invalid_json_is_refused_in_one_line(server, document, reason):
    reply = server.post("/detect", document, **JSON)
    assert reply.status in (400, 403)
    assert reason in reply.error
    until(server.holds_nothing)


def test_fields_of_a_form_are_settings(server, pictures):
    field = b'--cut\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    more = field % (b"threshold", b"0.35")
    reply = server.post("/detect", more + form(("a.png", pictures[0])), Content_Type=FORM)
    expected = server.post("/detect?threshold=0.35", pictures[0]).found["detections"]
    assert boxes(reply.found["detections"]) == boxes(expected)
    for content in (field % (b"threshold", b"x"), more * 2, field % (b"nms", b"1" * 20_000)):
        reply = server.post("/detect", content + form(("a.png", pictures[0])), Content_Type=FORM)
        assert reply.status == 400
    for name, hint in ((b"treshold", "Did you mean 'threshold'?"), (b"comment", "expected thresh")):
        content = field % (name, b"0.5") + form(("a.png", pictures[0]))
        reply = server.post("/detect", content, Content_Type=FORM)
        assert (reply.status, hint in reply.error) == (400, True)


@pytest.mark.parametrize(
    "content",
    [
        b'{"images": [' + b"[]," * 200_000 + b"[]]}",
        b'{"images": [' + b'"AAAA",' * 2000 + b'"AAAA"]}',
    ],
)
def test_json_of_many_values_is_refused_before_they_take_memory(server, content):
    reply = server.post("/detect", content, **JSON)
    assert (reply.status, "expected at most" in reply.error) == (413, True)


# ------------------------------------------------------------ KServe


def infer(server, *pictures, path="/v2/models/net/infer", **more):
    data = [text(each) for each in pictures]
    given = {"name": "picture", "shape": [len(data), 1], "datatype": "BYTES", "data": data}
    return post(server, path, {"id": "7", "inputs": [given], **more})


def outputs(reply):
    return {
        each["name"]: np.array(each["data"]).reshape(each["shape"])
        for each in reply.found["outputs"]
    }


@pytest.mark.parametrize("length", ["0" * 18 + "1" * 4400, "-1", "x", "99"])
def test_a_wrong_length_of_kserves_header_is_refused(server, length):
    headers = {"Inference-Header-Content-Length": length}
    reply = server.post("/v2/models/net/infer", b"{}", **headers)
    assert reply.status == 400
    assert reply.error.startswith("Inference-Header-Content-Length: expected a length")


def test_kserve_infers_as_the_detector(server, detector, pictures):
    reply = infer(server, pictures[0], b"broken", pictures[1], parameters={"threshold": 0.3})
    assert (reply.status, reply.found["id"], reply.found["model_name"]) == (200, "7", "net")
    found = outputs(reply)
    expected = [detector(pictures[0]), None, detector(pictures[1])]
    for row, result in enumerate(expected):
        count = 0 if result is None else len(result)
        assert found["count"][row] == count
        assert bool(found["error"][row, 0]) == (result is None)
        if result is not None:
            np.testing.assert_allclose(found["boxes"][row, :count], result.boxes, rtol=1e-6)
            assert found["labels"][row, :count].tolist() == list(result.labels)
    reply = infer(server, pictures[0], parameters={"read": True})
    assert (reply.status, reply.error[:6]) == (400, "read: ")
    reply = infer(server, pictures[0], outputs=[{"name": "scores"}, {"name": "count"}])
    assert list(outputs(reply)) == ["scores", "count"]
    assert (
        "outputs: box: expected count"
        in infer(server, pictures[0], outputs=[{"name": "box"}]).error
    )


@pytest.mark.parametrize("shape", [[True], [1.0, 1], 1, None])
def test_a_shape_of_kserve_has_whole_numbers(server, pictures, shape):
    given = {"name": "picture", "shape": shape, "datatype": "BYTES", "data": [text(pictures[0])]}
    reply = post(server, "/v2/models/net/infer", {"inputs": [given]})
    assert (reply.status, reply.error[:37]) == (400, "shape: expected [1, 1] for 1 elements")


def test_kserve_takes_binary_data_as_tritonclient_sends_it(server, detector, pictures):
    binary = b"".join(struct.pack("<I", len(each)) + each for each in pictures[:2])
    given = {"name": "picture", "shape": [2, 1], "datatype": "BYTES"}
    given["parameters"] = {"binary_data_size": len(binary)}
    document = {"inputs": [given], "parameters": {"binary_data_output": True}}
    head = json.dumps(document).encode()
    length = {"Inference_Header_Content_Length": str(len(head))}
    reply = server.post("/v2/models/net/infer", head + binary, **length)
    assert reply.status == 200, reply.content
    assert outputs(reply)["count"].ravel().tolist() == [
        len(detector(each)) for each in pictures[:2]
    ]
    for content in (head + binary[:-1], head + b"\xff\xff\xff\xff", head):
        assert server.post("/v2/models/net/infer", content, **length).status == 400
    given["parameters"] = {"binary_data_size": 40_000}
    head = json.dumps(document).encode()
    length = {"Inference_Header_Content_Length": str(len(head))}
    assert server.post("/v2/models/net/infer", head + bytes(40_000), **length).status == 413
    length = {"Inference_Header_Content_Length": "9999999"}
    assert server.post("/v2/models/net/infer", head + binary, **length).status == 400


def test_kserve_describes_server_and_model(server):
    assert server.get("/v2").found["name"] == "engine"
    assert server.get("/v2/health/live").found == {"live": True}
    assert server.get("/v2/health/ready").found == {"ready": True}
    assert server.get("/v2/models/net/ready").status == 200
    described = server.get("/v2/models/net/versions/1").found
    assert described["inputs"] == [{"name": "picture", "datatype": "BYTES", "shape": [-1, 1]}]
    assert [each["datatype"] for each in described["outputs"]] == [
        *("INT32", "FP32", "FP32", "INT64", "BYTES", "BYTES")
    ]
    reply = server.get("/v2/models/other")
    assert (reply.status, reply.error) == (404, "model other: expected net")


def test_kserve_serves_classifiers(tiny_classifier, pictures):
    with load(tiny_classifier) as detector, serving(detector) as server:
        reply = infer(server, pictures[0], path=f"/v2/models/{detector.name}/infer")
        assert list(outputs(reply)) == ["count", "scores", "class_ids", "labels", "error"]
        best = [each.label for each in detector(pictures[0])]
        assert outputs(reply)["labels"].ravel().tolist() == best
        assert "boxes" not in server.get(f"/v2/models/{detector.name}").content.decode()


# ------------------------------------------------------------ who may ask


def test_token_is_required_except_for_probes_and_the_page(detector, pictures):
    with serving(detector, access=Access(token="a-secret")) as server:
        for path in ("/", "/page.js", "/docs", "/openapi.json", "/healthz", "/v2/health/live"):
            assert server.get(path).status == 200
        for given in ({}, {"Authorization": "Bearer b"}, {"Authorization": "Basic a-secret"}):
            reply = server.post("/detect", pictures[0], **given)
            assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert "a-secret" not in reply.error
            assert server.get("/model", **given).status == 401
            assert server.get("/metrics", **given).status == 401
        assert server.post("/detect", pictures[0], Authorization="bearer a-secret").status == 200
        schemes = server.get("/openapi.json").found["components"]["securitySchemes"]
        assert schemes == {"token": {"type": "http", "scheme": "bearer"}}


def test_named_origins_may_call_the_server(detector, pictures):
    origin = "https://example.org"
    access = Access(cors=(origin,), token="word")
    with serving(detector, access=access) as server:
        headers = {"Origin": origin, "Sec_Fetch_Site": "cross-site", "Authorization": "Bearer word"}
        reply = server.post("/detect", pictures[0], **headers)
        assert (reply.status, reply.headers["Access-Control-Allow-Origin"]) == (200, origin)
        headers["Origin"] = "https://example.com"
        reply = server.post("/detect", pictures[0], **headers)
        assert (reply.status, reply.headers["Access-Control-Allow-Origin"]) == (403, None)
        connection = server.connect()
        preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        preflight["Access-Control-Request-Headers"] = "authorization, content-type"
        connection.request("OPTIONS", "/detect", headers=preflight)
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, origin)
        answer.read()
        preflight["Origin"] = "https://example.com"
        preflight["Access-Control-Request-Headers"] = "x-other"
        connection.request("OPTIONS", "/detect", headers=preflight)
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (400, None)
        assert answer.headers["Content-Type"] == "application/json"
        reason = "CORS: expected what --cors allows, got another origin, headers"
        assert json.loads(answer.read()) == {"error": reason}
        connection.close()
        server.service.accepted_pictures += 64
        reply = server.post("/detect", pictures[0], **{**headers, "Origin": origin})
        assert (reply.status, reply.headers["Access-Control-Allow-Origin"]) == (503, origin)
        server.service.accepted_pictures -= 64


@pytest.mark.parametrize(
    "given",
    [
        {"token": ""},
        {"token": "two words"},
        {"token": "\u00e4"},
        {"cors": ("example.org",)},
        {"cors": ("https://example.org/",)},
        {"cors": ("null",)},
        {"cors": ("https://",)},
        {"cors": ("https://example.org:port",)},
        {"cors": ("https://example.org:65536",)},
        {"cors": ("https://a..org",)},
        {"cors": ("https://exam ple.org",)},
        {"cors": ("https://[::1",)},
        {"cors": ("https://user@example.org",)},
        {"cors": ("https://example.org?",)},
        {"cors": ("https://example.org#",)},
        {"cors": ("http://*",)},
        {"cors": ("https://*.example.org",)},
        {"cors": ("https://example.*",)},
        {"cors": ("https://*:8080",)},
        {"cors": ("https://a%2A.org",)},
        {"cors": ("https://a,b",)},
        {"cors": ("https://256.1.1.1",)},
        {"cors": ("https://127.1",)},
        {"cors": ("https://0x7f.1",)},
        {"cors": ("https://[:::::]",)},
    ],
)
def test_invalid_access_is_refused_at_the_start(given):
    with pytest.raises(InputError, match=r"^--"):
        Access(**given)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("https://Example.org", "https://example.org"),
        ("HTTPS://example.org:443", "https://example.org"),
        ("http://example.org:80", "http://example.org"),
        ("http://example.org:443", "http://example.org:443"),
        ("https://example.org:", "https://example.org"),
        ("https://[2001:DB8::1]:8443", "https://[2001:db8::1]:8443"),
        ("http://[0:0:0:0:0:0:0:1]", "http://[::1]"),
        ("http://192.168.0.1:8080", "http://192.168.0.1:8080"),
        ("http://my_host.", "http://my_host."),
        ("https://m\u00fcnchen.example", "https://xn--mnchen-3ya.example"),
        ("*", "*"),
    ],
)
def test_origins_are_those_that_browsers_send(given, sent):
    assert list(Access(cors=(given,)).cors) == [sent]


def test_access_log_goes_on_after_its_folder_was_away(tmp_path, monkeypatch):
    monkeypatch.setattr(access, "_MAX_QUEUED_LINES", 50)
    path = tmp_path / "log/access.log"
    with AccessLog(str(path)) as log:

        def add(count=1):
            for _ in range(count):
                log.add("127.0.0.1", "GET", "/x", 200, 1, 0.1)

        add()
        until(lambda: path.exists() and path.read_text())
        path.parent.rename(tmp_path / "old")
        add()
        until(log._queue.empty)
        path.parent.mkdir()
        until(lambda: add() or path.exists())
        log._handler.acquire()  # as a disk that is slow
        add(100)
        log._handler.release()


def test_access_log_has_a_line_for_each_request(detector, pictures, tmp_path):
    path = tmp_path / "access.log"
    with AccessLog(str(path)) as log, serving(detector, access_log=log) as server:
        server.post("/detect?threshold=0.5", pictures[0], Authorization="Bearer hidden")
        server.get('/no%0Athing"')
        path.rename(tmp_path / "access.log.1")  # as logrotate does
        server.get("/healthz")
        server.service.accepted_pictures += 64
        server.post("/detect", pictures[0])
        server.service.accepted_pictures -= 64
    lines = (tmp_path / "access.log.1").read_text() + path.read_text()
    assert "hidden" not in lines
    found = re.findall(r'^127\.0\.0\.1 - - \[.* \+0000\] "(.*)" (\d+) \d+ [\d.]+$', lines, re.M)
    assert found == [
        ("POST /detect?threshold=0.5 HTTP/1.1", "200"),
        ("GET /no%0Athing%22 HTTP/1.1", "404"),
        ("GET /healthz HTTP/1.1", "200"),
        ("POST /detect HTTP/1.1", "503"),
    ]


def test_access_log_that_cannot_be_opened_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"--access-log .*: Not a directory"):
        AccessLog(str(tmp_path / "file" / "access.log"))
    with pytest.raises(InputError, match="expected a path on this machine, got an address"):
        AccessLog("s3://bucket/access.log")


def test_missing_folders_of_the_access_log_are_made(tmp_path):
    path = tmp_path / "new" / "folder" / "access.log"
    with AccessLog(str(path)):
        assert path.is_file()


# ------------------------------------------------------------ URLs


@contextmanager
def website(answers):
    """Serve `answers`, which maps a path to bytes or to the target of a redirect."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            answer = answers[self.path]
            is_redirect = isinstance(answer, str)
            self.send_response(302 if is_redirect else 200)
            if is_redirect:
                self.send_header("Location", answer)
                answer = b""
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=site.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{site.server_port}", asked
    finally:
        site.shutdown()
        site.server_close()
        thread.join()


@pytest.fixture
def public_loopback(monkeypatch):
    """Let 127.0.0.1, and only it, count as a public address."""
    monkeypatch.setattr(remote_pictures, "is_public", lambda address: address == "127.0.0.1")


def test_picture_at_a_url_is_detected(detector, pictures, public_loopback):
    answers = {"/a.png": pictures[0], "/moved": "/a.png", "/text": b"secret"}
    with website(answers) as (site, _), serving(detector, access=Access(allow_urls=True)) as server:
        assert server.get("/model").found["accepts_urls"] is True
        alone = server.post("/detect", pictures[0]).found
        for path in ("/a.png", "/moved"):
            reply = post(server, "/detect", {"url": site + path})
            assert (reply.status, reply.found["path"]) == (200, site + path)
            assert boxes(reply.found["detections"]) == boxes(alone["detections"])
        images = [{"url": site + "/a.png"}, {"url": "ftp://host/a"}, text(pictures[1])]
        entries = post(server, "/detect", {"images": images}).found["images"]
        assert "expected an address with http" in entries[1]["error"]
        assert [set(each) >= {"detections"} for each in entries] == [True, False, True]
        images = [text(pictures[1]), {"url": "http://[::1/"}]
        entries = post(server, "/detect", {"images": images}).found["images"]
        assert [set(each) >= {"detections"} for each in entries] == [True, False]
        assert "the address cannot be parsed" in entries[1]["error"]
        assert post(server, "/picture", {"url": "http://ex\u2100ample.org/"}).status == 422
        reply = post(server, "/picture", {"url": site + "/a.png"})
        assert (reply.content, reply.headers["Content-Type"]) == (pictures[0], "image/png")
        reply = post(server, "/picture", {"url": site + "/text"})
        assert reply.status == 422
        assert b"secret" not in reply.content
        until(server.holds_nothing)


def test_a_host_that_does_not_exist_is_said_to_be_missing(detector, monkeypatch):
    resolve = socket.getaddrinfo

    def unknown(host, *args, **options):
        if host == "nothing.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with serving(detector, access=Access(allow_urls=True)) as server:
        for path in ("/detect", "/picture"):
            reply = post(server, path, {"url": "http://nothing.invalid/a.png"})
            reason = "http://nothing.invalid/a.png: host name not found"
            assert (reply.status, reply.error) == (422, reason)


def test_private_addresses_are_not_reached(detector, pictures):
    with website({"/": pictures[0]}) as (site, asked):
        port = site.rpartition(":")[2]
        with serving(detector, access=Access(allow_urls=True)) as server:
            for host in (
                "127.0.0.1",
                "localhost",
                "127.1",
                "0x7f000001",
                "[::1]",
                "[::ffff:7f00:1]",
            ):
                for path in ("/detect", "/picture"):
                    reply = post(server, path, {"url": f"http://{host}:{port}/"})
                    assert reply.status == 422, host
                    assert "expected a public address" in reply.error or "::1" in host
        assert not asked


def test_redirects_are_checked_again(detector, pictures, public_loopback):
    with website({}) as (private, asked):
        target = private.replace("127.0.0.1", "127.0.0.2")
        with (
            website({"/": target + "/"}) as (site, _),
            serving(detector, access=Access(allow_urls=True)) as server,
        ):
            reply = post(server, "/detect", {"url": site + "/"})
            assert reply.status == 422
            assert reply.error.endswith("expected a public address, got one of a private network")
        assert not asked


def test_name_is_resolved_once_and_the_checked_address_is_used(monkeypatch, pictures, detector):
    resolve = socket.getaddrinfo
    names = []

    def rebinding(host, port, *args, **options):
        if host == "rebinding.example":
            names.append(host)
            host = "127.0.0.1" if len(names) == 1 else "127.0.0.3"
        return resolve(host, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(remote_pictures, "is_public", lambda address: address == "127.0.0.1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # must not be used
    with (
        website({"/": pictures[0]}) as (site, asked),
        serving(detector, access=Access(allow_urls=True)) as server,
    ):
        port = site.rpartition(":")[2]
        assert post(server, "/detect", {"url": f"http://rebinding.example:{port}/"}).status == 200
    assert (names, asked) == (["rebinding.example"], ["/"])


def test_fetch_that_ends_after_its_request_holds_no_memory(
    detector, pictures, public_loopback, monkeypatch
):
    resolve = socket.getaddrinfo
    is_over, has_ended = threading.Event(), threading.Event()

    def slow(host, *args, **options):
        if host == "slow.example":
            is_over.wait(10)
            host = "127.0.0.1"
        return resolve(host, *args, **options)

    fetch = remote_pictures.PictureFetcher._fetch

    def signalling(*args):
        try:
            return fetch(*args)
        finally:
            has_ended.set()

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr(remote_pictures.PictureFetcher, "_fetch", signalling)
    monkeypatch.setattr(remote_pictures, "_TOTAL_SECONDS", 0.2)
    monkeypatch.setattr(remote_pictures, "_READ_SECONDS", 0.2)
    with (
        website({"/": pictures[0]}) as (site, _),
        serving(detector, access=Access(allow_urls=True)) as server,
    ):
        port = site.rpartition(":")[2]
        reply = post(server, "/detect", {"url": f"http://slow.example:{port}/"})
        assert (reply.status, "not finished after" in reply.error) == (422, True)
        monkeypatch.setattr(remote_pictures, "_TOTAL_SECONDS", 10)
        is_over.set()
        assert has_ended.wait(10)
        until(server.holds_nothing)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("93.184.216.34", True),
        ("2606:4700::1111", True),
        ("10.0.0.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("192.168.1.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False),
        ("ff02::1", False),
    ],
)
def test_public_addresses_are_recognized(address, expected):
    assert remote_pictures.is_public(address) is expected


# ------------------------------------------------------------ OpenAPI


def test_openapi_describes_every_route_and_status(server):
    described = server.get("/openapi.json").found
    assert described["openapi"] == "3.1.0"
    paths = set(described["paths"])
    assert {"/detect", "/model", "/v2/models/net/infer", "/healthz", "/metrics"} <= paths
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            if method == "get":
                reply = server.get(path)
                assert str(reply.status) in operation["responses"]
                kind = reply.headers["Content-Type"].partition(";")[0]
                is_described = kind in operation["responses"]["200"]["content"]
                assert is_described or "{number}" in path  # which is no number of a source
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)))
    assert references == set(described["components"]["schemas"])
    entry = described["components"]["schemas"]["Entry"]["properties"]
    found = server.post("/detect?tiles=2x1", noise(40, 40)).found
    assert set(found) == set(entry) - {"warning", "exif"}  # of damaged and turned pictures
    assert set(server.get("/model").found) == set(
        described["components"]["schemas"]["Model"]["properties"]
    )
