"""What `Idempotency-Key` promises, checked at every order that schemathesis gets made. tests/schemathesis loads it."""

import json

import requests
import schemathesis

# Keys that are none: empty, too long, not printable, half a quoted string.
BAD_KEYS = [b"", b'""', b"x" * 256, b'"' + b"x" * 256 + b'"', b"\xc3\xa9", b"a\tb", b'"', b'"a', b'"a"b', b'"a\\b"']
# Bodies that are no order, under a key that is taken.
BAD_BODIES = [b"", b"{", b"\x00", b"\xff\xfe", b"[" * 5000, b'{"item":"a","item":"b","quantity":1}', b"9" * 60000]
OF_THE_MOMENT = ("date", "idempotent-replayed")

session = requests.Session()


def kept(response):
    headers = {name.lower(): value for name, value in response.headers.items() if name.lower() not in OF_THE_MOMENT}
    return response.status_code, headers, response.content


@schemathesis.check
def keys_hold_their_promise(ctx, response, case):
    request = response.request
    if request.method != "POST" or response.status_code != 201:
        return
    body = request.body if isinstance(request.body, bytes) else request.body.encode()
    key = request.headers["Idempotency-Key"]
    key = key if isinstance(key, bytes) else key.encode("latin-1")

    def send(body, **changed):
        headers = {"Idempotency-Key": key, "Authorization": request.headers["Authorization"]}
        headers["Content-Type"] = request.headers.get("Content-Type", "application/json")
        headers |= {name.replace("_", "-"): value for name, value in changed.items()}
        headers = {name: value for name, value in headers.items() if value is not None}
        answer = session.post(request.url, data=body, headers=headers, timeout=30)
        assert answer.status_code < 500, f"{answer.status_code} for {headers} {body[:100]!r}"
        return answer

    def refuses(answer, status, code):
        said = f"{answer.status_code} {dict(answer.headers)} {answer.text[:500]} to {answer.request.headers}"
        assert answer.headers["content-type"] == "application/problem+json", said
        problem = answer.json()
        assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code), said

    def replays(answer, what):
        said = f"{what}: {answer.status_code} {dict(answer.headers)} {answer.text[:500]} to {answer.request.headers}"
        assert answer.headers.get("idempotent-replayed") == "true", said
        assert answer.content == response.content and kept(answer) == kept(first), said

    first = send(body)
    replays(first, "again")
    order = json.loads(body)
    there = session.get(f"{case.operation.base_url}{first.headers['location']}", timeout=30)
    assert there.status_code == 200 and there.json() == first.json(), f"{there.status_code} {there.text}"
    spelt = json.dumps(dict(reversed(order.items())), indent=1).encode()
    replays(send(spelt), "spelt in another way")
    if key[:1] != b'"':
        quoted = b'"' + key.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
        replays(send(body, Idempotency_Key=quoted), "with its key quoted")
    other = json.dumps(order | {"quantity": order["quantity"] + 1}).encode()
    refuses(send(other), 422, "idempotency_key_reused")
    for bad in BAD_BODIES:
        refuses(send(bad), 422, "idempotency_key_reused")
    refuses(send(body, Idempotency_Key=None), 400, "idempotency_key_missing")
    for bad in BAD_KEYS:
        refuses(send(body, Idempotency_Key=bad), 400, "idempotency_key_invalid")
    refuses(send(b"x" * (64 * 1024 + 1)), 413, "body_too_large")
    # Another's key is another key.
    stranger = send(body, Authorization="Bearer somebody else: " + first.headers["location"])
    assert stranger.status_code == 201, stranger.text
    assert stranger.content != first.content, "a stranger was told another's answer"
