"""Signs the cases with the PyPI library, and verifies with it what the npm library signed."""

import json
import sys
from datetime import datetime, timezone

from standardwebhooks.webhooks import Webhook

for line in open(sys.argv[1], encoding="utf-8"):
    case = json.loads(line)
    webhook = Webhook(case["secret"])
    at = datetime.fromtimestamp(int(case["timestamp"]), tz=timezone.utc)
    case["pypi"] = webhook.sign(case["id"], at, case["body"])
    headers = {
        "webhook-id": case["id"],
        "webhook-timestamp": case["timestamp"],
        "webhook-signature": case["npm"],
    }
    try:
        webhook.verify(case["body"], headers)
    except json.JSONDecodeError:
        pass  # The library parses what it verifies, and these bodies need not be JSON.
    print(json.dumps(case, ensure_ascii=False))
