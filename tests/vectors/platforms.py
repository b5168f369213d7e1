"""Platforms for developers: code, builds, content, media, monitoring."""

from base import *


def buildkite_events(r):
    event, body = r.get("X-Buildkite-Event"), r.json
    thing = body.get("job") or body["build"]
    return [(f"{event}:{thing['id']}:{thing['state']}:{sha(r.body)}", event)]


def buildkite_cases(c):
    r = sample(c.name, "job.started", c.key, NOW, "token")
    r.set("X-Buildkite-Token", c.key)
    c.event("the token in clear", r, [c.key])
    c.rejected("the token in clear, wrong", r, [c.other])
    bad = c.request.copy()
    bad.set("X-Buildkite-Signature", c.request.get("X-Buildkite-Signature").replace("signature=", "signature=00"))
    bad.set("X-Buildkite-Token", c.key)
    c.rejected("a wrong signature beside the right token", bad, [c.key])
    build = {"id": "b1", "state": "running", "started_at": "2026-01-05T09:58:05.000Z", "finished_at": None}
    runs = [{"event": "build.running", "build": build, "pipeline": {"running_builds_count": n}} for n in (1, 2)]
    c.apart(*((f"a build runs, {n}", c.sign(c.post(run, [("X-Buildkite-Event", "build.running")]))) for n, run in enumerate(runs)))


def box(r, key, at):
    r.set("BOX-SIGNATURE-PRIMARY", b64(mac(key, r.body + r.get("BOX-DELIVERY-TIMESTAMP").encode())))


def box_cases(c):
    r = c.request.copy()
    r.set("BOX-SIGNATURE-SECONDARY", r.get("BOX-SIGNATURE-PRIMARY"))
    r.set("BOX-SIGNATURE-PRIMARY", b64(bytes(32)))
    c.event("the second key's signature", r, [c.key])
    for header, value in (("BOX-SIGNATURE-VERSION", "2"), ("BOX-SIGNATURE-ALGORITHM", "HmacSHA1")):
        bad = c.request.copy()
        bad.set(header, value)
        c.rejected(f"another {header}", bad, [c.key])


def cloudinary(algorithm):
    def sign(r, key, at):
        digest = hashlib.new(algorithm, r.body + r.get("X-Cld-Timestamp").encode() + key.encode())
        r.set("X-Cld-Signature", digest.hexdigest())

    return sign


def cloudinary_cases(c):
    r = sample(c.name, "delete", c.key, NOW - 2, "sha1")
    cloudinary("sha1")(r, c.key, NOW)
    c.event("sha1", r, [c.key])
    c.rejected("sha1, wrong key", r, [c.other])


def cloudevents_events(r):
    kind = r.get("Content-Type")
    if kind == "application/cloudevents-batch+json":
        return [(f"{e['source']} {e['id']}", e["type"]) for e in r.json]
    if r.get("ce-id"):
        return [(f"{r.get('ce-source')} {r.get('ce-id')}", r.get("ce-type"))]
    return [(f"{r.json['source']} {r.json['id']}", r.json["type"])]


def cloudevents_cases(c):
    r = sample(c.name, "com.example.order.cancelled", c.key, NOW, "query")
    r.set_query("access_token", c.key)
    c.event("the token in the query", r, [c.key])
    r = c.request.copy()
    r.set("Authorization", c.key)
    c.rejected("the token without its word", r, [c.key])


def cursor_events(r):
    return [(r.get("X-Webhook-ID"), r.get("X-Webhook-Event"))]


def docker_events(r):
    push = r.json["push_data"]
    return [(f"{r.json['repository']['repo_name']}:{push['tag']}:{push['pushed_at']}", "push_data")]


def either_token(header, url=False):
    """What also proves: user and password, or the token in the URL."""

    def cases(c):
        r = sample(c.name, samples_of(c.name)[0], c.key, NOW, "other way")
        if url:
            r.set_query("token", c.key)
            secret, wrong = c.key, c.other
        else:
            secret, wrong = credentials(c.name, 1), credentials(c.name, 2)
            basic(r, secret, NOW)
        c.event("the other way", r, [secret])
        c.rejected("the other way, wrong", r, [wrong])

    return cases


def gitea(r, key, at):
    form = dict(r.form) if "urlencoded" in r.get("Content-Type") else {}
    r.set("X-Gitea-Signature", mac(key, form["payload"] if form else r.body).hex())


def gitea_cases(c):
    r = sample(c.name, "push", c.key, NOW, "forgejo")
    r.set("X-Forgejo-Signature", mac(c.key, r.body).hex())
    c.event("Forgejo's header", r, [c.key])
    r = sample(c.name, "issues", c.key, NOW, "whole form")
    r.set("X-Gitea-Signature", mac(c.key, r.body).hex())
    c.rejected("the whole form signed", r, [c.key])


def hygraph(r, key, at):
    signed_text = json.dumps({"Body": r.body.decode(), "EnvironmentName": "master", "TimeStamp": at * 1000}, separators=(",", ":"), ensure_ascii=False)
    r.set("gcms-signature", f"sign={b64(mac(key, signed_text))}, env=master, t={at * 1000}")


def hygraph_cases(c):
    for old, new in (("env=master", "env=other"), (", t=1", ", t=2")):
        bad = c.request.copy()
        bad.set("gcms-signature", c.request.get("gcms-signature").replace(old, new))
        c.rejected(f"another {new.strip(', ')[:3]}", bad, [c.key])


def hygraph_events(r):
    data = r.json["data"]
    return [(f"{r.json['operation']}:{data['id']}:{sha(r.body)}", f"{data['__typename']}.{r.json['operation']}")]


def lovable_events(r):
    return [(r.json.get("id") or f"{r.json['type']}:{r.json['run_id']}", at_path(r.json, "data/action_type") or r.json["type"])]


def nylas_cases(c):
    c.challenge("challenge", c.get("?challenge=sample-0001"), [c.key], "sample-0001")


def circleci_cases(c):
    good = c.request.get("circleci-signature")
    r = c.request.copy()
    r.set("circleci-signature", f"v0=00,{good}")
    c.event("another version beside it", r, [c.key])
    r = c.request.copy()
    r.set("circleci-signature", good.replace("v1=", "v2="))
    c.rejected("another version only", r, [c.key])


def jira_cases(c):
    # The example of Atlassian's own page. Its body is no JSON: the event's name comes from a header, or from nowhere.
    shown = post(c.name, b"Hello World!", [("Content-Type", "text/plain")])
    shown.set("X-Hub-Signature", "sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9")
    c.malformed("the documented example", shown, ["It's a Secret to Everybody"])
    c.rejected("the documented example, wrong key", shown, [c.key])
    shown.set("X-Atlassian-Webhook-Identifier", "sample-0001")
    c.event("the documented example, with an identifier", shown, ["It's a Secret to Everybody"], [("sample-0001", None)])


def polar_cases(c):
    # Secrets that are made today are decoded, as Standard Webhooks have it.
    new, another = whsec()(c.name, 1), whsec()(c.name, 2)
    r = sample(c.name, "order.paid", new, NOW - 2, "decoded")
    standard()(r, new, NOW - 2)
    c.event("a newer secret", r, [new])
    c.event("a newer secret beside an older one", r, [c.key, new])
    c.rejected("a newer secret, wrong key", r, [another])
    c.rejected("a newer secret, tampered", tampered(c.provider, r), [new])
    c.sign(r, new)
    c.event("an older secret of the newer form", r, [new])
    c.rejected("an older secret of the newer form, wrong key", r, [another])


def airtable_sign(r, key, at):
    r.set("X-Airtable-Content-MAC", "hmac-sha256=" + mac(base64.b64decode(key), r.body).hex())


def authsignal(r, key, at):
    r.set("X-Signature-V2", f"t={at},v2={b64(mac(key, f'{at}.'.encode() + r.body)).rstrip('=')}")


def generic_events(r):
    return [(r.get("X-Event-Id") or r.json["id"], r.json["type"])]


def opsgenie_events(r):
    alert = r.json["alert"]
    return [(f"{alert['alertId']}:{r.json['action']}:{alert['updatedAt']}", r.json["action"])]


def pusher_events(r):
    return [(f"{r.json['time_ms']}:{sha(compact(e))}", e["name"]) for e in r.json["events"]]


def segment_events(r):
    return [(r.json["messageId"], ".".join(r.json[k] for k in ("type", "event") if k in r.json))]


def smartcar_cases(c):
    ask = c.sign(c.post({"eventId": "e1", "eventType": "VERIFY", "data": {"challenge": "sample-challenge"}, "meta": {}}))
    answer = compact({"challenge": mac(c.key, "sample-challenge").hex()})
    c.challenge("verification", ask, [c.key], answer)
    c.rejected("verification, wrong key", ask, [c.other])
    c.rejected("verification, unsigned", c.post({"eventId": "e1", "eventType": "VERIFY", "data": {"challenge": "x"}}), [c.key])


def auth0_events(r):
    try:
        found = r.json if isinstance(r.json, list) else [r.json]
    except ValueError:
        found = [json.loads(line) for line in r.body.split(b"\n") if line.strip()]
    return [(i["log_id"], i["data"]["type"]) for i in found]


def auth0_cases(c):
    one = {"log_id": "1", "data": {"type": "s", "date": "2026-01-05T10:00:00Z"}}
    c.event("JSON Object", c.sign(c.post(one)), [c.key])
    c.event("JSON Object on several lines", c.sign(c.post(json.dumps(one, indent=2).encode())), [c.key])
    c.event("JSON Lines with an empty one and CRLF", c.sign(c.post(compact(one).encode() + b"\r\n\r\n" + compact(one | {"log_id": "2"}).encode() + b"\r\n")), [c.key])
    c.malformed("JSON Lines, one that is cut", c.sign(c.post(compact(one).encode() + b"\n" + compact(one)[:20].encode())), [c.key])
    c.malformed("JSON Array that is cut", c.sign(c.post(compact([one])[:-1].encode())), [c.key])


def terraform_events(r):
    run = r.json["run_id"]
    return [(f"{run}:{n['trigger']}:{n['run_updated_at']}", n["trigger"]) for n in r.json["notifications"]]


def terraform_cases(c):
    body = {"payload_version": 1, "notification_configuration_id": "nc-sample1", "run_url": None, "run_id": None, "notifications": [{"message": "Verification of Sample", "trigger": "verification", "run_status": None, "run_updated_at": None}]}
    r = c.sign(c.post(body))
    c.event("verification", r, [c.key], [(f"nc-sample1:verification:{sha(r.body)}", "verification")])
    r = c.post(body)
    r.set("X-TFE-Notification-Signature", mac(c.key, r.body).hex())
    c.rejected("sha256", r, [c.key])


def websub(r, key, at):
    r.set("X-Hub-Signature", "sha1=" + mac(key, r.body, "sha1").hex())


def websub_cases(c):
    for algorithm in ("sha256", "sha384", "sha512"):
        r = c.request.copy()
        r.set("X-Hub-Signature", f"{algorithm}={mac(c.key, r.body, algorithm).hex()}")
        c.event(algorithm, r, [c.key])
    r = c.request.copy()
    r.set("X-Hub-Signature", f"md5={mac(c.key, r.body, 'md5').hex()}")
    c.rejected("md5", r, [c.key])
    topic = "https%3A%2F%2Fwww.youtube.com%2Fxml%2Ffeeds%2Fvideos.xml%3Fchannel_id%3Dsample"
    for mode in ("subscribe", "unsubscribe"):
        c.challenge(mode, c.get(f"?hub.mode={mode}&hub.topic={topic}&hub.challenge=1158201444&hub.lease_seconds=432000"), [c.key], "1158201444")
    c.rejected("another topic", c.get(f"?hub.mode=subscribe&hub.topic={topic}x&hub.challenge=1158201444"), [c.key])


def segment_cases(c):
    first = b'{"messageId":"m1","type":"track","event":"A"}'
    r = c.post(b"[" + first + b',{"messageId":"m2","type":"track","event":"B"}]')
    r.set("X-Signature", mac(c.key, first, "sha1").hex())
    c.rejected("a batch whose first event is signed", r, [c.key])


def finch(r, key, at):
    head = f"{r.get('Finch-Event-Id')}.{r.get('Finch-Timestamp')}.".encode()
    r.set("Finch-Signature", "v1," + b64(mac(base64.b64decode(key), head + r.body)))


def strapi_events(r):
    body = r.json
    if "entry" not in body:
        return [(f"{body['event']}:{sha(r.body)}", body["event"])]
    return [(f"{body['event']}:{body['uid']}:{body['entry']['id']}:{body['createdAt']}", body["event"])]


def sanity(r, key, at):
    t = at * 1000
    value = base64.urlsafe_b64encode(mac(key, f"{t}.".encode() + r.body)).decode().rstrip("=")
    r.set("sanity-webhook-signature", f"t={t},v1={value}")


def google_push_cases(c):
    r = c.request.copy()
    r.set("X-Goog-Resource-State", "sync")
    r.set("X-Goog-Message-Number", "1")
    c.challenge("a new channel", r, [c.key])
    c.rejected("a new channel, wrong token", r, [c.other])


PROVIDERS = {
    "google_push": Provider(token("X-Goog-Channel-Token"), lambda r: [(f"{r.get('X-Goog-Channel-ID')}:{r.get('X-Goog-Message-Number')}", r.get("X-Goog-Resource-State"))], "X-Goog-Channel-Token", tamper=None, cases=google_push_cases),
    "airtable": Provider(airtable_sign, lambda r: [(f"{r.json['webhook']['id']}:{r.json['timestamp']}", "webhook.changed")], "X-Airtable-Content-MAC", whsec("")),
    "anthropic": standard_like(lambda r: [(r.get("webhook-id"), r.json["data"]["type"])]),
    "auth0": Provider(token("Authorization"), auth0_events, "Authorization", tamper=None, cases=auth0_cases),
    "authsignal": Provider(authsignal, fields("id", "type"), "X-Signature-V2", tolerance=300),
    "box": Provider(box, fields("id", "trigger"), "BOX-SIGNATURE-PRIMARY", tolerance=600, cases=box_cases),
    "buildkite": Provider(stamped("X-Buildkite-Signature", "timestamp={t},signature={s}"), buildkite_events, "X-Buildkite-Signature", hexadecimal(64), 300, cases=buildkite_cases),
    "circleci": Provider(body_hex("circleci-signature", "v1="), fields("id", "type"), "circleci-signature", cases=circleci_cases),
    "cloudevents": Provider(bearer, cloudevents_events, "Authorization", tamper=None, cases=cloudevents_cases),
    "cloudinary": Provider(cloudinary("sha256"), lambda r: [(f"{r.json['notification_type']}:{sha(r.body)}", r.json["notification_type"])], "X-Cld-Signature", tolerance=7200, cases=cloudinary_cases),
    "cursor": Provider(body_hex("X-Webhook-Signature", "sha256="), cursor_events, "X-Webhook-Signature"),
    "datadog": Provider(token("X-Webhook-Token"), fields("id", "event_type"), "X-Webhook-Token", tamper=None, cases=either_token("X-Webhook-Token")),
    "deepgram": Provider(token("dg-token"), lambda r: [(at_path(r.json, "metadata/request_id") or r.json["request_id"], "results" if "results" in r.json else "err_code")], "dg-token", lambda n, i: str(uuid.UUID(int=i)), tamper=None, cases=either_token("dg-token")),
    "docker_hub": Provider(query_token("token"), docker_events, "query:token", tamper=None),
    "generic_basic": Provider(basic, generic_events, "Authorization", credentials, tamper=None),
    "gitea": Provider(gitea, lambda r: [(r.get("X-Gitea-Delivery"), r.get("X-Gitea-Event"))], ["X-Gitea-Signature", "X-Forgejo-Signature"], cases=gitea_cases),
    "hygraph": Provider(hygraph, hygraph_events, "gcms-signature", cases=hygraph_cases),
    "imagekit": Provider(stamped("x-ik-signature", "t={t},v1={s}", scale=1000), fields("id", "type"), "x-ik-signature", prefixed("whsec_")),
    "jira": Provider(body_hex("X-Hub-Signature", "sha256="), header_id("X-Atlassian-Webhook-Identifier", "webhookEvent"), "X-Hub-Signature", cases=jira_cases),
    "lovable": Provider(stamped("x-lovable-signature", "sha256={s}", time_header="x-lovable-timestamp"), lovable_events, "x-lovable-signature", tolerance=300),
    "mux": Provider(stamped("Mux-Signature", "t={t},v1={s}"), fields("id", "type"), "Mux-Signature", hexadecimal(32), 300),
    "nylas": Provider(body_hex("X-Nylas-Signature"), fields("id", "type"), "X-Nylas-Signature", cases=nylas_cases),
    "opsgenie": Provider(token("X-Webhook-Token"), opsgenie_events, "X-Webhook-Token", tamper=None, cases=either_token("X-Webhook-Token", url=True)),
    "bigcommerce": standard_raw(header_id("webhook-id", "scope"), answer=""),
    "elevenlabs": Provider(stamped("ElevenLabs-Signature", "t={t},v0={s}"), joined("type", "type", "data/conversation_id", "event_timestamp"), "ElevenLabs-Signature", prefixed("wsec_"), 1800),
    "finch": Provider(finch, header_id("Finch-Event-Id", "event_type"), "Finch-Signature", whsec(""), 300),
    "polar": standard_raw(header_id("webhook-id", "type"), key=prefixed("polar_whs_"), cases=polar_cases),
    "pusher": Provider(body_hex("X-Pusher-Signature"), pusher_events, "X-Pusher-Signature", hexadecimal(20)),
    "sanity": Provider(sanity, headers("idempotency-key", "sanity-operation"), "sanity-webhook-signature"),
    "seam": Provider(standard("svix"), fields("event_id", "event_type"), "svix-signature", whsec(), 300),
    "segment": Provider(body_hex("X-Signature", algorithm="sha1"), segment_events, "X-Signature", cases=segment_cases),
    "smartcar": Provider(body_hex("SC-Signature"), fields("eventId", "eventType"), "SC-Signature", lambda n, i: str(uuid.UUID(int=i)), answer="", cases=smartcar_cases),
    "strapi": Provider(bearer, strapi_events, "Authorization", tamper=None, cases=header_token("X-Webhook-Token")),
    "stream_chat": Provider(body_hex("X-Signature"), header_id("X-Webhook-Id", "type"), "X-Signature", plain),
    "supabase_db": Provider(bearer, lambda r: [(None, f"{r.json['table']}.{r.json['type']}")], "Authorization", tamper=None, cases=header_token("X-Webhook-Token")),
    "terraform_cloud": Provider(body_hex("X-TFE-Notification-Signature", algorithm="sha512"), terraform_events, "X-TFE-Notification-Signature", cases=terraform_cases),
    "websub": Provider(websub, lambda r: [(sha(r.body), r.get("Content-Type"))], "X-Hub-Signature", config={"topic": "https://www.youtube.com/xml/feeds/videos.xml?channel_id=sample"}, cases=websub_cases),
    "whop": standard_raw(header_id("webhook-id", "type"), key=prefixed("ws_")),
    "workos": Provider(stamped("WorkOS-Signature", "t={t}, v1={s}", scale=1000), fields("id", "event"), "WorkOS-Signature", tolerance=180),
}
