// Signs cases with the npm library, and verifies them with it.
import { Webhook } from "standardwebhooks";

const now = Math.floor(Date.now() / 1000);
const secrets = [
  "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
  "whsec_" + Buffer.alloc(24, 1).toString("base64"),
  "whsec_" + Buffer.alloc(64, 0xfe).toString("base64"),
];
const cases = [
  { id: "stripe:evt_1:orders", body: '{"id":"evt_1"}' },
  { id: "stripe:evt_1:orders", body: "" },
  { id: "asaas:a%20b%25:ledger", body: '{"nome":"Conceição","emoji":"💸","n":12345678901234567890.10}\r\n' },
  { id: "github:" + "x".repeat(300) + ":h", body: "a=b&c=%2F" },
  { id: "mp:1.2.3:h", body: "." },
];
for (const secret of secrets) {
  for (const { id, body } of cases) {
    const webhook = new Webhook(secret);
    const npm = webhook.sign(id, new Date(now * 1000), body);
    const headers = { "webhook-id": id, "webhook-timestamp": String(now), "webhook-signature": npm };
    // The library parses what it verifies, and these bodies need not be JSON.
    try {
      webhook.verify(body, headers);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
    }
    console.log(JSON.stringify({ secret, id, timestamp: String(now), body, npm }));
  }
}
