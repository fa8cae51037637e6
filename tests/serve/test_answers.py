"""Answers to a request: JSON or a picture, by its own settings, or an error line."""

import io
import json
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from engine.version import __version__
from tests import needs
from tests.serve.running import ask, load, serving
from tests.vision.test_chroma import of_half_height
from tests.vision.test_damage import png

BOUNDARY = "a-boundary"
FORM = {"Content_Type": f"multipart/form-data; boundary={BOUNDARY}"}


def form(*parts):
    """Encode parts, each (name, file name or None, content)."""
    text = b""
    for name, file, content in parts:
        about = f'form-data; name="{name}"' + (f'; filename="{file}"' if file else "")
        text += f"--{BOUNDARY}\r\nContent-Disposition: {about}\r\n\r\n".encode()
        text += content + b"\r\n"
    return text + f"--{BOUNDARY}--\r\n".encode()


def without_times(entry):
    return {key: value for key, value in entry.items() if key != "timing_ms"}


def test_picture_as_the_body_gives_the_same_as_python(server, detector, pictures):
    for picture in pictures:
        reply = server.post("/detect", picture, Content_Type="image/png")
        assert reply.status == 200
        assert reply.headers["Content-Type"] == "application/json"
        assert without_times(reply.found) == without_times(detector(picture).to_dict())
        assert set(reply.found["timing_ms"]) == {"prepare", "network", "suppress", "queue"}
    assert len({len(detector(picture)) for picture in pictures}) > 1


def test_chroma_at_half_height_is_upsampled_like_in_python(server, detector):
    content = of_half_height(np.random.default_rng(3).integers(0, 256, (48, 64, 3), np.uint8))
    expected = without_times(detector(content).to_dict())
    assert expected["detections"]
    assert expected != without_times(detector(Image.open(io.BytesIO(content))).to_dict())
    assert without_times(server.post("/detect", content).found) == expected


@pytest.mark.parametrize("kind", ["image/jpeg", "application/octet-stream", None, "IMAGE/X; a=b"])
def test_format_is_detected_from_the_content(server, pictures, kind):
    headers = {"Content_Type": kind} if kind else {}
    assert server.post("/detect", pictures[0], **headers).status == 200


@pytest.mark.slow
@pytest.mark.parametrize("offered", ["h2c", "websocket", "foo"])
def test_protocol_upgrades_are_ignored(server, detector, pictures, offered):
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": offered, "HTTP2-Settings": "AAM"}
    with closing(server.connect()) as connection:
        for picture in pictures * 2:
            for body in (picture, iter([picture[:1000], picture[1000:]])):
                connection.request("POST", "/detect", body, headers)
                with connection.getresponse() as reply:
                    found = json.loads(reply.read())
                assert reply.status == 200
                assert without_times(found) == without_times(detector(picture).to_dict())


def test_curls_default_content_type_is_accepted(server, pictures):
    kind = "application/x-www-form-urlencoded"
    assert server.post("/detect", pictures[0], Content_Type=kind).status == 200


def test_form_with_a_file_gives_the_same_and_its_name(server, detector, pictures):
    body = form(("image", 'd"\u00f6g.png'.replace('"', '\\"'), pictures[1]))
    reply = server.post("/detect", body, **FORM)
    assert reply.status == 200
    expected = {**detector(pictures[1]).to_dict(), "path": 'd"\u00f6g.png'}
    assert without_times(reply.found) == without_times(expected)


def test_browsers_escape_three_characters_of_a_file_name(server, pictures):
    reply = server.post("/detect", form(("image", "%22a%22%0D%0A%25%20.png", pictures[1])), **FORM)
    assert reply.found["path"] == '"a"\r\n%25%20.png'


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (form(("a", None, b"x")), "expected a file, got none. With curl: -F image=@dog.jpg"),
        (form(("a", "a.png", b"x"))[:-10], "ends before its last boundary"),
        (b"something else", "cannot be read"),
        (
            form(("a", "a.png", b"x"), ("", None, b"x")),
            'expected name="…" or filename="…" in each part, got neither',
        ),
        (f"--{BOUNDARY}\r\n\r\nx\r\n--{BOUNDARY}--\r\n".encode(), 'expected name="…" or'),
        (form(*[("a", None, b"x")] * 300), "expected at most 256 fields"),
    ],
)
def test_other_forms_are_refused(server, body, reason):
    reply = server.post("/detect", body, **FORM)
    assert reply.status == 400
    assert reply.error.startswith("multipart: ")
    assert reason in reply.error


def test_a_form_without_a_boundary_is_refused(server):
    reply = server.post("/detect", b"", Content_Type="multipart/form-data")
    assert (reply.status, reply.error) == (
        400,
        "multipart: expected a boundary in Content-Type, got none",
    )


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("threshold=0.6", {"threshold": 0.6}),
        ("threshold=0.05&nms=0.9", {"threshold": 0.05, "nms": 0.9}),
        ("max_detections=2", {"max_detections": 2}),
        ("max-detections=2", {"max_detections": 2}),
        ("classes=cat,2", {"classes": ["cat", 2]}),
        ("tiles=40&overlap=0.1", {"tiles": 40, "overlap": 0.1}),
        ("tiles=2x1&max_detections=3", {"tiles": (2, 1), "max_detections": 3}),
    ],
)
def test_settings_of_one_request(server, model, pictures, query, options):
    with load(model, **{"threshold": 0.3, **options}) as alone:
        expected = alone(pictures[0]).to_dict()
    reply = server.post(f"/detect?{query}", pictures[0])
    assert without_times(reply.found) == without_times(expected)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            "treshold=1",
            "treshold: expected threshold, nms, classes, max_detections, read, tiles, overlap,"
            " blur, pixelate. Did you mean",
        ),
        ("threshold=much", "threshold: expected a number, got 'much'"),
        ("threshold=nan", "threshold: expected a number from 0 to 1, got nan"),
        ("threshold=-1", "threshold: expected a number from 0 to 1, got -1.0"),
        ("threshold=50", "threshold: expected a number from 0 to 1, got 50.0. Did you mean 0.5?"),
        ("nms=2", "nms: expected a number from 0 to 1, got 2.0"),
        ("nms=1&nms=2", "nms: expected once, got twice"),
        ("max_detections=0", "max_detections: expected an integer of 1 or more, got 0"),
        ("max_detections=1.5", "max_detections: expected an integer, got '1.5'"),
        ("max_detections=1_0", "max_detections: expected an integer, got '1_0'"),
        ("max_detections=%D9%A3", "max_detections: expected an integer, got '\u0663'"),
        ("classes=cta", "classes: no class is called 'cta'. Did you mean 'cat'?"),
        ("classes=3", "classes: expected a number below 3, got 3"),
        ("classes=,", "classes: expected at least one, got none"),
        ("top_k=3", "top_k: expected threshold, nms, classes, max_detections, read, tiles,"),
        ("tiles=aut", "tiles: expected auto, none, SIZE in pixels or COLUMNSxROWS such as 4x3,"),
        ("overlap=0.85", "overlap: expected a number from 0 to 0.8, got 0.85"),
        ("overlap=2", "overlap: expected a number from 0 to 0.8, got 2.0"),
        ("blur=cta", "blur: no class is called 'cta'. Did you mean 'cat'?"),
        ("pixelate=3", "pixelate: expected a number below 3, got 3"),
        ("blur=cat&blur=dog", "blur: expected once, got twice"),
    ],
)
def test_invalid_settings_are_refused(server, pictures, query, reason):
    reply = server.post(f"/detect?{query}", pictures[0])
    assert reply.status == 400
    assert reply.error.startswith(reason)


def test_tiles_of_one_picture_are_limited(detector, pictures):
    with serving(detector, tiles=20) as server:
        assert server.post("/detect?tiles=2x2", pictures[0]).found["tiles"] == 5
        reply = server.post("/detect?tiles=5x4", pictures[0])
        assert (reply.status, reply.error) == (
            413,
            "tiles: expected at most 20 of a picture, got 21",
        )
        assert server.post("/detect?tiles=999x999", pictures[0]).status == 422


@pytest.mark.parametrize("way", ["blur", "pixelate"])
def test_classes_are_hidden_in_an_annotated_picture(server, detector, pictures, way):
    found = detector(pictures[1])
    for chosen in ("all", found.labels[0]):
        expected = np.asarray(found.plot(pictures[1], **{way: chosen}))
        headers = {"Accept": "image/png"}
        reply = server.post(f"/detect?{way}={chosen}", pictures[1], **headers)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(reply.content))), expected)
        fields = form(("image", "1.png", pictures[1]), (way, None, chosen.encode()))
        reply = server.post("/detect", fields, **FORM, **headers)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(reply.content))), expected)
        assert (expected != np.asarray(found.plot(pictures[1]))).any()


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("image/jpeg", "JPEG"),
        ("image/png, image/jpeg;q=0.5", "PNG"),
        ("image/*", "JPEG"),
        ("text/html;q=0.9, image/png;q=0.8, */*;q=0", "PNG"),
    ],
)
def test_an_annotated_picture_by_accept(server, detector, pictures, accept, kind):
    reply = server.post("/detect", pictures[0], Accept=accept)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == f"image/{kind.lower()}"
    image = Image.open(io.BytesIO(reply.content))
    assert image.format == kind
    if kind == "PNG":
        assert image.tobytes() == detector(pictures[0]).plot(pictures[0]).tobytes()


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/html, */*;q=0.1", ""])
def test_json_by_accept(server, pictures, accept):
    assert server.post("/detect", pictures[0], Accept=accept).found["detections"]


def test_unknown_answer_type_is_refused(server, pictures):
    reply = server.post("/detect", pictures[0], Accept="text/html")
    assert reply.status == 406
    assert reply.error.startswith("Accept: expected application/json or image/jpeg or image/png")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "picture: expected JPEG, PNG, WebP, BMP, GIF, TIFF or PPM, got an empty file."),
        (b"<!doctype html>", "picture: expected JPEG, PNG, WebP, BMP, GIF, TIFF or PPM, got a web"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "picture: cannot be decoded: "),
    ],
)
def test_invalid_picture_gives_the_reason(server, content, reason):
    reply = server.post("/detect", content)
    assert reply.status == 422
    assert reply.error.startswith(reason)
    assert "\n" not in reply.error


def test_scores_that_overflow_are_an_error_of_the_picture(overflowing, pictures):
    with load(overflowing) as opened, serving(opened) as server:
        reply = server.post("/detect", pictures[0])
    assert reply.status == 422
    assert reply.error.startswith("picture: scores: expected numbers, got NaN or infinity")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"Content_Type": "text/plain"}, "Content-Type: expected image/…, multipart/form-data or"),
        ({"Content_Encoding": "gzip"}, "Content-Encoding: expected none, got 'gzip'"),
    ],
)
def test_other_types_are_refused(server, pictures, headers, reason):
    reply = server.post("/detect", pictures[0], **headers)
    assert reply.status == 415
    assert reply.error.startswith(reason)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Sec_Fetch_Site": "same-origin", "Origin": "https://before.the.proxy"}, 200),
        ({"Sec_Fetch_Site": "none"}, 200),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site", "Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://{host}:{port}"}, 200),
        ({"Origin": "http://{host}:1"}, 403),
        ({"Origin": "http://{host}"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://evil.example:{port}"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_cross_origin_requests_are_refused(server, pictures, headers, status):
    here = {"host": server.host, "port": server.port}
    headers = {name: value.format(**here) for name, value in headers.items()}
    assert server.post("/detect", pictures[0], **headers).status == status


def test_many_requests_on_one_connection(server, detector, pictures):
    connection = server.connect()
    for picture in pictures[:3]:
        assert ask(connection, "POST", "/detect", b"nothing").status == 422
        reply = ask(connection, "POST", "/detect", picture)
        assert len(reply.found["detections"]) == len(detector(picture))
    connection.close()


def test_other_addresses_and_methods(server):
    assert server.get("/detekt").status == 404
    assert "expected POST /detect" in server.get("/detekt").error
    reply = server.get("/detect")
    assert (reply.status, reply.headers["Allow"]) == (405, "POST")
    reply = server.post("/classify", b"")
    assert (reply.status, reply.error) == (404, "/classify: this is a detector. POST /detect")


def test_a_classifier_names_the_best_classes(tiny_classifier, pictures):
    with load(tiny_classifier, batch=2, top_k=3) as detector, serving(detector) as server:
        reply = server.post("/classify", pictures[0])
        assert without_times(reply.found) == without_times(detector(pictures[0]).to_dict())
        assert len(reply.found["classes"]) == 3
        assert len(server.post("/classify?top-k=2", pictures[0]).found["classes"]) == 2
        assert server.post("/classify?threshold=1", pictures[0]).status == 400
        assert server.post("/classify", pictures[0], Accept="image/png").status == 406
        assert server.get("/model").found["task"] == "classifier"
        assert server.holds_nothing()


def test_model_and_health_endpoints(server, detector):
    about = server.get("/model").found
    assert about["engine"] == __version__
    assert about["classes"] == ["cat", "dog", "cow"]
    assert (about["width"], about["height"], about["batch"]) == (*detector.size, 4)
    for path, text in (("/healthz", b"ok\n"), ("/readyz", b"ready\n")):
        reply = server.get(path)
        assert (reply.status, reply.content) == (200, text)


def test_metrics_are_in_prometheus_format(detector, pictures):
    parser = needs.package("prometheus_client.parser")
    with serving(detector) as server:
        for picture in pictures[:3]:
            server.post("/detect", picture)
        server.post("/detect", b"")
        server.get("/secret/123")
        reply = server.get("/metrics")
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {
        family.name: family
        for family in parser.text_string_to_metric_families(reply.content.decode())
    }
    requests = {
        (each.labels["path"], each.labels["status"]): each.value
        for each in families["engine_requests"].samples
    }
    assert requests == {("/detect", "200"): 3, ("/detect", "422"): 1, ("other", "404"): 1}
    samples = {
        (each.name, each.labels.get("le")): each.value
        for family in families.values()
        for each in family.samples
        if each.labels.get("path", "/detect") == "/detect"
    }
    assert samples["engine_pictures_total", None] == 3
    assert samples["engine_batch_pictures_count", None] == 3
    assert samples["engine_batch_pictures_bucket", "1"] == 3
    assert samples["engine_request_seconds_count", None] == 4
    assert samples["engine_request_seconds_bucket", "+Inf"] == 4
    assert samples["engine_request_seconds_sum", None] > 0
    assert samples["engine_queue_depth", None] == 0
    (info,) = families["engine_info"].samples
    assert info.labels == {"version": __version__, "device": "cpu", "task": "detector"}


def test_errors_are_json_in_one_line(server):
    for reply in (server.get("/nothing"), server.post("/detect", b"x"), server.get("/detect")):
        assert list(json.loads(reply.content)) == ["error"]
        assert b"\n" not in reply.content


def test_the_answer_says_that_a_picture_is_damaged(server):
    whole, half = png(share=1), png()
    (reply, other) = (
        server.post("/detect", content, Content_Type="image/png") for content in (half, whole)
    )
    assert reply.status == other.status == 200
    assert reply.found["warning"] == ("has 50 % of its pixels; the missing part is black or empty")
    assert "warning" not in other.found


@pytest.mark.parametrize("orient", [True, False])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_the_answer_says_that_exif_turns_a_picture(model, kind, orient):
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.new("RGB", (60, 30)).save(file, kind, exif=exif)
    with load(model, orient=orient) as detector, serving(detector) as server:
        found = server.post("/detect", file.getvalue()).found
    assert found["exif"] == {"orientation": 6, "applied": orient}
    assert (found["width"], found["height"]) == ((30, 60) if orient else (60, 30))
