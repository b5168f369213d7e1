// Signs the cases of providers/*/vectors.jsonl again with the senders' own libraries, or has those judge them, and
// keeps the results as further lines, `sdk_node …`. Not needed to run the tests: it is for changing vectors.
//
//     npm install --ignore-scripts --prefix DIR (with package.json from here), then
//     node tests/vectors/sdk.mjs DIR            writes the lines and lists what a library sees otherwise
//     node tests/vectors/sdk.mjs DIR stripe …   only these
//
// Deterministic: the clock stands at each line's `now`, and only libraries whose signatures are functions of the
// request sign.

import { createHash, createPrivateKey, createPublicKey, createSecretKey } from "node:crypto";
import { EventEmitter } from "node:events";
import https from "node:https";
import { createRequire } from "node:module";
import { readFileSync, writeFileSync, existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const [dir, ...only] = process.argv.slice(2);
if (!dir) throw new Error("where are the libraries?");
const require = createRequire(join(dir, "package.json"));
const providers = fileURLToPath(new URL("../../providers/", import.meta.url));

const RealDate = Date;
let now = 0;
globalThis.Date = class extends RealDate {
  constructor(...args) {
    super(...(args.length ? args : [now]));
  }
  static now() {
    return now;
  }
};

const version = (name) => JSON.parse(readFileSync(join(dir, "node_modules", name, "package.json"))).version;
const inside = (name, path) => require(join(dir, "node_modules", name, path));
const form = (text) => {
  const out = {};
  for (const [key, value] of new URLSearchParams(text)) {
    out[key] = key in out ? [].concat(out[key], value) : value;
  }
  return out;
};
const seconds = (request, header) => Number(request.headers[header]);
const at = (line) => line.now - 2;
const base64 = (text) => Buffer.from(text).toString("base64");

// `sign` gives headers; `verify` throws or gives false where the library refuses. `only` says which cases a library
// can speak about.
const standard = (name, more = {}) => ({
  package: name,
  load: () => require(name).Webhook,
  sign: (Webhook, { request, secret, body }) => {
    const family = request.headers["svix-id"] ? "svix" : "webhook";
    const time = new RealDate(seconds(request, `${family}-timestamp`) * 1000);
    const key = new Webhook(secret.replace(/^v1,/, ""), more.options);
    return { [`${family}-signature`]: key.sign(request.headers[`${family}-id`], time, body) };
  },
  verify: (Webhook, { request, secret, body }) => new Webhook(secret.replace(/^v1,/, ""), more.options).verify(body, request.headers),
  only: (line) => !line.case.includes("raw") && !line.secrets.some((s) => s.includes("whpk") || s.includes("BEGIN")),
});

const settings = "x-twilio-webhooks-signature-settings";

const LIBRARIES = {
  amazon_sns: {
    package: "sns-validator",
    load: () => require("sns-validator"),
    // The topic is bound here, and the library does not know it.
    only: (line) => !/another topic|another host/.test(line.case),
    verify: (Validator, { line, body }) =>
      new Promise((resolve, reject) => {
        // What the library would fetch.
        https.get = (url, answer) => {
          const response = new EventEmitter();
          response.statusCode = url in line.config.certs ? 200 : 404;
          answer(response);
          if (response.statusCode === 200) response.emit("data", line.config.certs[url]), response.emit("end");
          return { on: () => {} };
        };
        new Validator().validate(body, (error) => (error ? reject(error) : resolve(true)));
      }),
  },
  authsignal: {
    package: "@authsignal/node",
    load: () => require("@authsignal/node").Authsignal,
    only: (line) => !line.case.includes("future"),
    verify: (Authsignal, { request, secret, body }) => new Authsignal({ apiSecretKey: secret }).webhook.constructEvent(body, request.headers["x-signature-v2"]) !== null,
  },
  box: {
    package: "box-node-sdk",
    load: () => inside("box-node-sdk", "lib/managers/webhooks.js").WebhooksManager,
    // It compares the first key with the first signature, and the second with the second; and takes no clock that is ahead.
    only: (line) => !/rotation|second|secondary|future/.test(line.case),
    verify: (Manager, { request, secret, body }) => Manager.validateMessage(body, request.headers, secret),
  },
  chargebee: {
    package: "chargebee",
    load: () => require("chargebee").basicAuthValidator,
    only: (line) => line.headers.every(([name, value]) => name !== "Authorization" || !value.startsWith("basic")),
    verify: async (validator, { request, secret }) => (await validator((user, password) => `${user}:${password}` === secret)(request.headers), true),
  },
  coinbase_commerce: {
    package: "coinbase-commerce-node",
    load: () => require("coinbase-commerce-node").Webhook,
    sign: (Webhook, { secret, body }) => ({ "x-cc-webhook-signature": Webhook.computeSignature(body, secret) }),
    verify: (Webhook, { request, secret, body }) => Webhook.verifySigHeader(body, request.headers["x-cc-webhook-signature"] ?? "", secret),
  },
  creem: {
    package: "creem",
    load: () => inside("creem", "dist/commonjs/webhooks.js"),
    verify: async (sdk, { request, secret, body }) => (await sdk.verifyWebhookSignature(body, request.headers, secret), true),
  },
  ebay: {
    package: "event-notification-nodejs-sdk",
    load: () => ({ client: inside("event-notification-nodejs-sdk", "lib/client.js"), validator: inside("event-notification-nodejs-sdk", "lib/validator.js") }),
    // It writes the JSON anew before it verifies.
    only: (line) => !line.case.includes("whitespace"),
    verify: (sdk, { request, secret, body }) => {
      sdk.client.getPublicKey = async () => ({ key: secret.replace(/\n/g, "") });
      return sdk.validator.validateSignature(JSON.parse(body), request.headers["x-ebay-signature"] ?? "", {});
    },
  },
  finch: {
    package: "@tryfinch/finch-api",
    load: () => new (require("@tryfinch/finch-api"))({ accessToken: "not-real" }).webhooks,
    verify: (hooks, { request, secret, body }) => hooks.unwrap(body, request.headers, secret.replace("whsec_", "")) !== null,
  },
  google_pubsub: {
    package: "google-auth-library",
    load: () => require("google-auth-library").OAuth2Client,
    // Who pushes is told here by the address, which is no part of the library's check; and its clock may be 5 min off.
    only: (line) => !/email|account|verified|expired/i.test(line.case),
    verify: async (Client, { line, request }) => {
      const jwks = JSON.parse(Object.values(line.config.certs)[0]).keys;
      const pems = Object.fromEntries(jwks.map((jwk) => [jwk.kid, createPublicKey({ key: jwk, format: "jwk" }).export({ type: "spki", format: "pem" })]));
      const token = request.headers.authorization.replace(/^Bearer /i, "");
      return (await new Client().verifySignedJwtWithCertsAsync(token, pems, line.config.audience, ["https://accounts.google.com", "accounts.google.com"])) !== null;
    },
  },
  hygraph: {
    package: "@hygraph/utils",
    load: () => require("@hygraph/utils"),
    // It wants its three parts in their usual order, with a space between.
    only: (line) => !/order|space|several/.test(line.case),
    verify: (sdk, { request, secret, body }) => sdk.verifyWebhookSignature({ rawPayload: body, signature: request.headers["gcms-signature"], secret }),
  },
  nango: {
    package: "@nangohq/node",
    load: () => require("@nangohq/node").Nango,
    verify: (Nango, { request, secret, body }) => new Nango({ apiKey: "not-real", webhookSigningKey: secret }).verifyIncomingWebhookRequest(body, request.headers),
  },
  plaid: {
    // The library that Plaid's page shows for Node; its own has none.
    package: "jose",
    load: () => require("jose"),
    // It reads one key, and knows nothing of `expired_at`.
    only: (line) => !/future|has ended|a set of keys/.test(line.case),
    verify: async (jose, { request, secret, body }) => {
      const jwk = JSON.parse(secret);
      const { payload, protectedHeader } = await jose.jwtVerify(request.headers["plaid-verification"], await jose.importJWK(jwk, "ES256"), { algorithms: ["ES256"], maxTokenAge: "5 min", currentDate: new RealDate(now) });
      return protectedHeader.kid === jwk.kid && payload.request_body_sha256 === createHash("sha256").update(body).digest("hex");
    },
  },
  seam: { ...standard("seam"), load: () => require("seam").SeamWebhook, sign: undefined },
  smartcar: {
    package: "smartcar",
    load: () => require("smartcar"),
    // It writes the JSON anew before it verifies.
    only: (line) => !line.case.includes("whitespace"),
    verify: (sdk, { request, secret, body }) => sdk.verifyPayload(secret, request.headers["sc-signature"], JSON.parse(body)),
  },
  stone: {
    // A library for JOSE, as Stone's page asks for; it has none for Node.
    package: "jose",
    load: () => require("jose"),
    verify: async (jose, { line, body }) => {
      for (const pem of line.decryption_keys) {
        try {
          const key = createPrivateKey(pem);
          const options = { keyManagementAlgorithms: ["RSA-OAEP-256"], contentEncryptionAlgorithms: ["A256GCM"] };
          const { plaintext } = await jose.compactDecrypt(JSON.parse(body).encrypted_body, key, options);
          const host = line.config?.environment === "sandbox" ? "sandbox-api" : "api";
          const fetched = line.config?.certs?.[`https://${host}.openbank.stone.com.br/api/v1/discovery/keys`];
          const set = fetched ? JSON.parse(fetched) : { keys: line.secrets.map((secret) => JSON.parse(secret)) };
          const { payload } = await jose.jwtVerify(plaintext, jose.createLocalJWKSet(set), { algorithms: ["RS256"], currentDate: new RealDate(now) });
          return payload.event_type !== undefined;
        } catch (error) {
          if (line.decryption_keys.length === 1) throw error;
        }
      }
      return false;
    },
  },
  viber: {
    package: "viber-bot",
    load: () => inside("viber-bot", "lib/message/message-validator.js"),
    sign: (Validator, { secret, body }) => ({ "x-viber-content-signature": new Validator({ debug: () => {} }, secret)._calculateHmacFromMessage(body) }),
    verify: (Validator, { request, secret, body }) => new Validator({ debug: () => {} }, secret).validateMessage(request.headers["x-viber-content-signature"], body),
  },
  vonage: {
    package: "@vonage/jwt",
    load: () => inside("@vonage/jwt", "dist/cjs/index.js"),
    // It proves the token; that this is one of the body, and of today, its page leaves to the reader.
    only: (line) => !/tampered|stale|future|hash|old|other body/.test(line.case),
    verify: (sdk, { request, secret }) => sdk.verifySignature(request.headers.authorization.replace(/^Bearer /i, ""), secret),
  },
  webflow: {
    package: "webflow-api",
    load: () => inside("webflow-api", "dist/wrapper/WebhooksClient.js").Client,
    // It judges no time.
    only: (line) => !/stale|future|no time/.test(line.case),
    verify: (Client, { request, secret, body }) => new Client({ accessToken: "not-real" }).verifySignature({ headers: request.headers, body, secret }),
  },
  wix: {
    package: "@wix/sdk",
    load: () => import(pathToFileURL(join(dir, "node_modules/@wix/sdk/build/index.js"))),
    // It reads base64 loosely: white space in it, and spare bits at its end, are passed over.
    only: (line) => !/whitespace|tampered AppInstalled/.test(line.case),
    verify: async (sdk, { secret, body }) => (await sdk.AppStrategy({ appId: "not-real", publicKey: secret }).decodeJWT(body)).valid,
  },
  whop: {
    package: "@whop/sdk",
    load: () => new (require("@whop/sdk"))({ apiKey: "not-real" }).webhooks,
    verify: (hooks, { request, secret, body }) => hooks.unwrap(body, { headers: request.headers, key: base64(secret) }) !== null,
  },
  alipay: {
    package: "alipay-sdk",
    load: () => require("alipay-sdk").AlipaySdk,
    only: (line) => !/(another|other) application/.test(line.case),
    verify: (AlipaySdk, { request, secret }) => {
      const alipayPublicKey = secret.replace(/-----[A-Z ]+-----|\s/g, "");
      return new AlipaySdk({ appId: "1", privateKey: "not-real", alipayPublicKey, signType: request.form?.sign_type ?? "RSA2" }).checkNotifySign(request.form ?? {}, true);
    },
  },
  wecom: {
    package: "@wecom/crypto",
    load: () => require("@wecom/crypto"),
    only: (line) => !line.case.includes("document type"),
    verify: (sdk, { line, secret, body }) => {
      const query = new URL(line.url).searchParams;
      const text = query.get("echostr") ?? /<Encrypt><!\[CDATA\[(.*?)\]\]>/.exec(body)?.[1] ?? /"encrypt":"(.*?)"/.exec(body)?.[1] ?? "";
      const [token, key] = secret.split(":");
      if (sdk.getSignature(token, query.get("timestamp"), query.get("nonce"), text) !== query.get("msg_signature")) return false;
      const { message } = sdk.decrypt(key, text);
      return line.expect.response_body && query.get("echostr") ? message === line.expect.response_body : message.length > 0;
    },
  },
  dropbox_sign: {
    package: "@dropbox/sign",
    load: () => require("@dropbox/sign"),
    only: (line) => !/cut|field/.test(line.case),
    verify: (sdk, { request, secret, body }) => {
      const text = request.form?.json ?? body.slice(body.indexOf("{"), body.lastIndexOf("}") + 1);
      const { event } = JSON.parse(text);
      return sdk.EventCallbackHelper.isValid(secret, { event: { eventTime: event.event_time, eventType: event.event_type, eventHash: event.event_hash } });
    },
  },
  hook0: {
    package: "hook0-client",
    load: () => require("hook0-client"),
    // Version 0 is not taken here.
    only: (line) => !line.case.includes("version 0"),
    verify: (sdk, { request, secret, body }) => sdk.verifyWebhookSignatureWithCurrentTime(request.headers["x-hook0-signature"], Buffer.from(body), new Headers(request.headers), secret, 300, new RealDate(now)) === true,
  },
  braintree: {
    package: "braintree",
    load: () => require("braintree"),
    // The library takes the pair only.
    only: (line) => line.secrets.some((secret) => secret.includes(":")),
    verify: async (sdk, { line, request, secret }) => {
      const [publicKey, privateKey] = secret.split(":");
      const gateway = new sdk.BraintreeGateway({ environment: sdk.Environment.Sandbox, merchantId: "m", publicKey, privateKey });
      const challenge = new URL(line.url).searchParams.get("bt_challenge");
      if (challenge !== null) {
        const answer = await gateway.webhookNotification.verify(challenge);
        return line.expect.response_body === undefined ? undefined : answer === line.expect.response_body;
      }
      return !gateway.webhookNotification.validateSignature(request.form.bt_signature, request.form.bt_payload);
    },
  },
  atlassian_connect: {
    package: "atlassian-jwt",
    load: () => require("atlassian-jwt"),
    only: (line) => !/install|another/.test(line.case),
    verify: (sdk, { line, request, secret }) => {
      const claims = sdk.decodeSymmetric(request.headers.authorization.replace(/^JWT /, ""), secret, "HS256");
      const url = new URL(line.url);
      return claims.qsh === sdk.createQueryStringHash(sdk.fromMethodAndUrl(line.method, url.pathname + url.search));
    },
  },
  easypost: {
    package: "@easypost/api",
    load: () => new (require("@easypost/api"))("not-real"),
    verify: (client, { request, secret, body }) => Boolean(client.Utils.validateWebhook(Buffer.from(body), request.headers, secret)),
  },
  elevenlabs: {
    package: "@elevenlabs/elevenlabs-js",
    load: () => new (require("@elevenlabs/elevenlabs-js").ElevenLabsClient)({ apiKey: "not-real" }).webhooks,
    verify: async (hooks, { request, secret, body }) => (await hooks.constructEvent(body, request.headers["elevenlabs-signature"], secret), true),
  },
  onfido: {
    package: "@onfido/api",
    load: () => require("@onfido/api").WebhookEventVerifier,
    verify: (Verifier, { request, secret, body }) => (new Verifier(secret).readPayload(body, request.headers["x-sha2-signature"]), true),
  },
  fintoc: {
    package: "fintoc",
    load: () => require("fintoc").WebhookSignature,
    verify: (Signature, { request, secret, body }) => Signature.verifyHeader(body, request.headers["fintoc-signature"], secret, 300) !== false,
  },
  stripe: {
    package: "stripe",
    load: () => new (require("stripe"))("sk_test_notReal").webhooks,
    sign: (hooks, { line, secret, body }) => ({ "stripe-signature": hooks.generateTestHeaderString({ payload: body, secret, timestamp: at(line) }) }),
    verify: (hooks, { request, secret, body }) => hooks.signature.verifyHeader(body, request.headers["stripe-signature"], secret, 300),
  },
  github: {
    package: "@octokit/webhooks-methods",
    load: () => import(join(dir, "node_modules/@octokit/webhooks-methods/dist-node/index.js")),
    sign: async (methods, { secret, body }) => ({ "x-hub-signature-256": await methods.sign(secret, body) }),
    verify: (methods, { request, secret, body }) => methods.verify(secret, body, request.headers["x-hub-signature-256"]),
  },
  svix: standard("svix"),
  clerk: standard("svix"),
  resend: standard("svix"),
  standardwebhooks: standard("standardwebhooks"),
  loops: standard("standardwebhooks"),
  supabase: standard("standardwebhooks"),
  openai: {
    package: "openai",
    load: () => new (require("openai").OpenAI)({ apiKey: "not-real" }).webhooks,
    verify: async (hooks, { request, secret, body }) => (await hooks.verifySignature(body, request.headers, secret), true),
  },
  polar: {
    package: "@polar-sh/sdk",
    load: () => ({ Webhook: createRequire(join(dir, "node_modules/@polar-sh/sdk/package.json"))("standardwebhooks").Webhook, sdk: inside("@polar-sh/sdk", "dist/commonjs/webhooks.js") }),
    // It knows the older secrets only.
    only: (line) => !line.case.startsWith("a newer secret"),
    // The library's own schema wants whole events, which the samples are not: a signature that holds is what counts.
    verify: ({ sdk }, { request, secret, body }) => {
      try {
        sdk.validateEvent(body, request.headers, secret);
      } catch (error) {
        if (error instanceof sdk.WebhookVerificationError) throw error;
      }
      return true;
    },
  },
  twilio: {
    package: "twilio",
    load: () => require("twilio"),
    sign: (twilio, { line, request, secret }) => ({ "x-twilio-signature": inside("twilio", "lib/webhooks/webhooks.js").getExpectedTwilioSignature(secret, line.url, request.form ?? {}, twilio.getSignatureAlgorithm(request.headers[settings])) }),
    verify: (twilio, { line, request, secret, body }) => {
      const given = request.headers["x-twilio-signature"] ?? "";
      const algorithm = twilio.getSignatureAlgorithm(request.headers[settings]);
      if (request.form) return twilio.validateRequest(secret, given, line.url, request.form, algorithm);
      return line.url.includes("bodySHA256") && twilio.validateRequestWithBody(secret, given, line.url, body, algorithm);
    },
  },
  square: {
    package: "square",
    load: () => require("square").WebhooksHelper,
    verify: (helper, { line, request, secret, body }) => helper.verifySignature({ requestBody: body, signatureHeader: request.headers["x-square-hmacsha256-signature"], signatureKey: secret, notificationUrl: line.url }),
  },
  razorpay: {
    package: "razorpay",
    load: () => require("razorpay"),
    verify: (razorpay, { request, secret, body }) => razorpay.validateWebhookSignature(body, request.headers["x-razorpay-signature"], secret),
  },
  workos: {
    package: "@workos-inc/node",
    load: () => new (require("@workos-inc/node").WorkOS)("sk_not_real").webhooks,
    sign: async (hooks, { line, secret, body }) => ({ "workos-signature": `t=${at(line) * 1000}, v1=${await hooks.computeSignature(at(line) * 1000, JSON.parse(body), secret)}` }),
    verify: (hooks, { request, secret, body }) => hooks.verifyHeader({ payload: JSON.parse(body), sigHeader: request.headers["workos-signature"], secret, tolerance: 180000 }),
  },
  pusher: {
    package: "pusher",
    load: () => require("pusher"),
    verify: (Pusher, { request, secret, body }) => new Pusher({ appId: "1", key: request.headers["x-pusher-key"] ?? "k", secret, cluster: "x" }).webhook({ headers: request.headers, rawBody: body }).isValid(),
  },
  cloudinary: {
    package: "cloudinary",
    load: () => require("cloudinary").v2,
    // The library takes the algorithm from its configuration.
    verify: (cloudinary, { request, secret, body }) => {
      const given = request.headers["x-cld-signature"];
      cloudinary.config({ api_secret: secret, signature_algorithm: given?.length === 40 ? "sha1" : "sha256" });
      return cloudinary.utils.verifyNotificationSignature(body, seconds(request, "x-cld-timestamp"), given);
    },
  },
  line: {
    package: "@line/bot-sdk",
    load: () => import(join(dir, "node_modules/@line/bot-sdk/dist/index.js")),
    verify: (sdk, { request, secret, body }) => sdk.validateSignature(body, secret, request.headers["x-line-signature"]),
  },
  imagekit: {
    package: "imagekit",
    load: () => new (require("imagekit"))({ publicKey: "p", privateKey: "p", urlEndpoint: "https://example.com" }),
    verify: (sdk, { request, secret, body }) => sdk.verifyWebhookEvent(body, request.headers["x-ik-signature"], secret),
  },
  telnyx: {
    package: "telnyx",
    load: () => inside("telnyx", "lib/webhooks.js").TelnyxWebhook,
    verify: async (Webhook, { request, secret, body }) => (await new Webhook(secret).verify(body, request.headers), true),
  },
  paddle: {
    package: "@paddle/paddle-node-sdk",
    load: () => new (require("@paddle/paddle-node-sdk").Paddle)("not-real").webhooks,
    verify: (hooks, { request, secret, body }) => hooks.isSignatureValid(body, secret, request.headers["paddle-signature"]),
  },
  mux: {
    package: "@mux/mux-node",
    load: () => new (require("@mux/mux-node"))({ tokenId: "a", tokenSecret: "b" }).webhooks,
    verify: async (hooks, { request, secret, body }) => (await hooks.verifySignature(body, request.headers, secret), true),
  },
  discord: {
    package: "discord-interactions",
    load: () => require("discord-interactions"),
    verify: (sdk, { request, secret, body }) => sdk.verifyKey(body, request.headers["x-signature-ed25519"], request.headers["x-signature-timestamp"], secret),
  },
  sendgrid: {
    package: "@sendgrid/eventwebhook",
    load: () => new (require("@sendgrid/eventwebhook").EventWebhook)(),
    verify: (hook, { request, secret, body }) => hook.verifySignature(hook.convertPublicKeyToECDSA(secret), body, request.headers["x-twilio-email-event-webhook-signature"], request.headers["x-twilio-email-event-webhook-timestamp"]),
  },
  shopify: {
    package: "@shopify/shopify-api",
    load: () => {
      inside("@shopify/shopify-api", "dist/cjs/adapters/node/index.js");
      return inside("@shopify/shopify-api", "dist/cjs/lib/index.js");
    },
    verify: async ({ shopifyApi }, { request, secret, body }) => {
      const api = shopifyApi({ apiKey: "k", apiSecretKey: secret, hostName: "example.com", apiVersion: "2026-01", isEmbeddedApp: false, scopes: [], logger: { log: () => {} } });
      const result = await api.webhooks.validate({ rawBody: body, rawRequest: { method: "POST", url: "/", headers: request.headers }, rawResponse: {} });
      // It also wants headers that are not signed, which is another matter.
      return result.valid || (result.reason === "missing_headers" && request.headers["x-shopify-hmac-sha256"] ? undefined : false);
    },
  },
  slack: {
    package: "@slack/bolt",
    load: () => inside("@slack/bolt", "dist/receivers/verify-request.js"),
    verify: (sdk, { request, secret, body }) => sdk.isValidSlackRequest({ signingSecret: secret, body, headers: { "x-slack-signature": request.headers["x-slack-signature"], "x-slack-request-timestamp": seconds(request, "x-slack-request-timestamp") }, nowMilliseconds: now }),
  },
  hubspot: {
    package: "@hubspot/api-client",
    load: () => require("@hubspot/api-client").Signature,
    only: (line) => line.headers.some(([name]) => name.toLowerCase() === "x-hubspot-signature-v3"),
    sign: (Signature, { line, request, secret, body }) => ({ "x-hubspot-signature-v3": Signature.getSignature("POST", "v3", { clientSecret: secret, requestBody: body, url: line.url, timestamp: seconds(request, "x-hubspot-request-timestamp") }) }),
    verify: (Signature, { line, request, secret, body }) => Signature.isValid({ method: line.method, signatureVersion: "v3", signature: request.headers["x-hubspot-signature-v3"], clientSecret: secret, requestBody: body, url: line.url, timestamp: seconds(request, "x-hubspot-request-timestamp") }),
  },
  contentful: {
    package: "@contentful/node-apps-toolkit",
    load: () => require("@contentful/node-apps-toolkit"),
    verify: (sdk, { line, request, secret, body }) => {
      const url = new URL(line.url);
      return sdk.verifyRequest(secret, { method: line.method, path: url.pathname + url.search, headers: request.headers, body }, 30);
    },
  },
  kontent: {
    package: "@kontent-ai/webhook-helper",
    load: () => require("@kontent-ai/webhook-helper").signatureHelper,
    sign: (helper, { secret, body }) => ({ "x-kontent-ai-signature": helper.getHashFromString(body, secret) }),
    verify: (helper, { request, secret, body }) => helper.isValidSignatureFromString(body, secret, request.headers["x-kontent-ai-signature"]),
  },
  sanity: {
    package: "@sanity/webhook",
    load: () => require("@sanity/webhook"),
    sign: async (sdk, { line, secret, body }) => ({ "sanity-webhook-signature": await sdk.encodeSignatureHeader(body, at(line) * 1000, secret) }),
    verify: async (sdk, { request, secret, body }) => (await sdk.assertValidSignature(body, request.headers["sanity-webhook-signature"], secret), true),
  },
  plivo: {
    package: "plivo",
    load: () => inside("plivo", "dist/utils/v3Security.js"),
    only: (line) => line.headers.some(([name]) => name.toLowerCase() === "x-plivo-signature-v3"),
    verify: (sdk, { line, request, secret }) => sdk.validateV3Signature(line.method, line.url, request.headers["x-plivo-signature-v3-nonce"], secret, request.headers["x-plivo-signature-v3"], request.form ?? {}),
  },
  livekit: {
    package: "livekit-server-sdk",
    load: () => require("livekit-server-sdk").WebhookReceiver,
    verify: async (Receiver, { request, secret, body }) => {
      const cut = secret.indexOf(":");
      await new Receiver(secret.slice(0, cut), secret.slice(cut + 1)).receive(body, request.headers.authorization);
      return true;
    },
  },
  stream_chat: {
    package: "stream-chat",
    load: () => require("stream-chat"),
    verify: (sdk, { request, secret, body }) => sdk.verifySignature(body, request.headers["x-signature"], secret),
  },
  adyen: {
    package: "@adyen/api-library",
    load: () => new (inside("@adyen/api-library", "lib/src/utils/hmacValidator.js").default)(),
    verify: (validator, { request, secret, body }) => {
      const items = JSON.parse(body).notificationItems;
      if (!items) return validator.validateHMACSignature(secret, request.headers.hmacsignature ?? "", body);
      return items.length > 0 && items.every((item) => validator.validateHMAC(item.NotificationRequestItem, secret));
    },
  },
  adyen_platforms: {
    package: "@adyen/api-library",
    load: () => new (inside("@adyen/api-library", "lib/src/utils/hmacValidator.js").default)(),
    sign: (validator, { secret, body }) => ({ hmacsignature: validator.calculateHmac(body, secret) }),
    verify: (validator, { request, secret, body }) => validator.validateHMACSignature(secret, request.headers.hmacsignature, body),
  },
  mercadopago: {
    package: "mercadopago",
    load: () => inside("mercadopago", "dist/utils/webhook/index.js").WebhookSignatureValidator,
    verify: (validator, { line, request, secret }) => {
      validator.validate({ xSignature: request.headers["x-signature"], xRequestId: request.headers["x-request-id"], dataId: new URL(line.url).searchParams.get("data.id"), secret });
      return true;
    },
  },
  dodopayments: {
    package: "dodopayments",
    load: () => new (require("dodopayments"))({ bearerToken: "not-real" }).webhooks,
    verify: (hooks, { request, secret, body }) => hooks.unwrap(body, { headers: request.headers, key: secret }) !== null,
  },
  lark: {
    package: "@larksuiteoapi/node-sdk",
    load: () => require("@larksuiteoapi/node-sdk"),
    // It looks at no token; what it cannot decrypt is refused later.
    only: (line) => line.secrets.every((secret) => secret.includes(":")) && !/challenge|another key|where a key/.test(line.case),
    verify: (sdk, { request, secret, body }) => {
      const encryptKey = secret.split(":")[1];
      const dispatcher = new sdk.EventDispatcher({ encryptKey, loggerLevel: 0 });
      const data = Object.assign(Object.create({ headers: request.headers }), JSON.parse(body));
      if (!dispatcher.requestHandle.checkIsEventValidated(data)) return false;
      return Object.keys(dispatcher.requestHandle.parse(data)).length > 1;
    },
  },
  saleor: {
    package: "@saleor/app-sdk",
    load: () => require("@saleor/app-sdk/auth"),
    // It takes the body as it is whatever `b64` says, passes over a payload in the header, and knows no secretKey and no domain.
    only: (line) => !/secretKey|domain|base64|a payload of its own|b64 is (the other|not there, nor)|an extension twice/.test(line.case),
    verify: async (sdk, { line, request, body }) => {
      await sdk.verifySignatureWithJwks(Object.values(line.config.certs)[0], request.headers["saleor-signature"] ?? "", body);
      return true;
    },
  },
  lithic: {
    package: "lithic",
    load: () => new (require("lithic"))({ apiKey: "not-real" }).webhooks,
    verify: (hooks, { request, secret, body }) => hooks.unwrap(body, request.headers, secret) !== null,
  },
  anthropic: {
    package: "@anthropic-ai/sdk",
    load: () => new (require("@anthropic-ai/sdk"))({ apiKey: "not-real" }).beta.webhooks,
    verify: (hooks, { request, secret, body }) => hooks.unwrap(body, { headers: request.headers, key: secret }) !== null,
  },
  liveblocks: {
    package: "@liveblocks/node",
    load: () => require("@liveblocks/node").WebhookHandler,
    // An event that the library does not know is refused after the signature held.
    verify: (Handler, { request, secret, body }) => {
      try {
        return new Handler(secret).verifyRequest({ headers: request.headers, rawBody: body }) !== null;
      } catch (error) {
        if (/Unknown event type/.test(error.message)) return true;
        throw error;
      }
    },
  },
  replicate: {
    package: "replicate",
    load: () => require("replicate").validateWebhook,
    verify: (validate, { request, secret, body }) => validate({ id: request.headers["webhook-id"], timestamp: request.headers["webhook-timestamp"], signature: request.headers["webhook-signature"], body, secret }),
  },
  modern_treasury: {
    package: "modern-treasury",
    load: () => new (require("modern-treasury"))({ apiKey: "not-real", organizationID: "not-real" }).webhooks,
    sign: (hooks, { secret, body }) => ({ "x-signature": hooks.getSignature(body, { key: secret }) }),
    verify: (hooks, { request, secret, body }) => hooks.validateSignature(body, request.headers, { key: secret }),
  },
  notion: {
    package: "@notionhq/client",
    load: () => require("@notionhq/client"),
    sign: async (sdk, { secret, body }) => ({ "x-notion-signature": await sdk.signWebhookPayload({ body, verificationToken: secret }) }),
    verify: (sdk, { request, secret, body }) => sdk.verifyWebhookSignature({ body, signature: request.headers["x-notion-signature"], verificationToken: secret }),
  },
  linear: {
    package: "@linear/sdk",
    load: () => import(join(dir, "node_modules/@linear/sdk/dist/webhooks/index.mjs")),
    verify: (sdk, { request, secret, body }) => new sdk.LinearWebhookClient(secret).verify(Buffer.from(body), request.headers["linear-signature"], JSON.parse(body).webhookTimestamp),
  },
  gocardless: {
    package: "gocardless-nodejs",
    load: () => require("gocardless-nodejs/webhooks"),
    verify: (sdk, { request, secret, body }) => sdk.parse(body, secret, request.headers["webhook-signature"]) !== null,
  },
  cashfree: {
    package: "cashfree-pg",
    load: () => require("cashfree-pg"),
    verify: ({ Cashfree, CFEnvironment }, { request, secret, body }) => new Cashfree(CFEnvironment.SANDBOX, "id", secret).PGVerifyWebhookSignature(request.headers["x-webhook-signature"], body, request.headers["x-webhook-timestamp"]) !== null,
  },
  messagebird: {
    package: "messagebird",
    load: () => inside("messagebird", "lib/webhook-signature-jwt.js"),
    verify: async (sdk, { line, request, secret, body }) => {
      const options = new sdk.VerifyOptions();
      options.jwtVerifyOptions.currentDate = new RealDate(now);
      await sdk.verify(line.url, Buffer.from(body), request.headers["messagebird-signature-jwt"], createSecretKey(Buffer.from(secret)), options);
      return true;
    },
  },
  truelayer: {
    package: "truelayer-signing",
    load: () => require("truelayer-signing"),
    only: (line) => line.config?.certs !== undefined,
    verify: (sdk, { line, request, body }) => {
      const jwks = Object.values(line.config.certs)[0];
      sdk.verify({ jwks: typeof jwks === "string" ? jwks : JSON.stringify(jwks), signature: request.headers["tl-signature"], method: line.method, path: new URL(line.url).pathname, body, headers: request.headers });
      return true;
    },
  },
};

const read = (path) => readFileSync(path, "utf8").split("\n").filter(Boolean).map((text) => JSON.parse(text));

function prepare(line, secret) {
  const headers = {};
  for (const [name, value] of line.headers) headers[name.toLowerCase()] ??= value;
  const body = Buffer.from(line.body_base64, "base64").toString();
  const isForm = headers["content-type"]?.startsWith("application/x-www-form-urlencoded");
  return { line, secret, body, request: { headers, form: isForm ? form(body) : null } };
}

async function judge(library, loaded, line) {
  let verdict = false;
  for (const secret of line.secrets.length ? line.secrets : [null]) {
    try {
      const said = await library.verify(loaded, prepare(line, secret));
      if (said === undefined) verdict ||= undefined;
      else if (said !== false) return true;
    } catch (error) {
      if (process.env.WHY) console.log("  ", line.case, String(error.message ?? error).slice(0, 120));
    }
  }
  return verdict;
}

let differences = 0;
for (const [name, library] of Object.entries(LIBRARIES)) {
  const path = join(providers, name, "vectors.jsonl");
  if ((only.length && !only.includes(name)) || !existsSync(path)) continue;
  const says = `npm ${library.package} ${version(library.package)}`;
  const lines = read(path);
  const ours = lines.filter((line) => line.basis !== "sdk" && (!library.only || library.only(line)) && line.expect.status !== "challenge");
  const result = [];
  let loaded;
  try {
    now = ours[0].now * 1000;
    loaded = await library.load();
  } catch (error) {
    console.log(`${name}: ${says} does not load: ${String(error.message).split("\n")[0]}`);
    continue;
  }
  let refusal = false;
  for (const line of ours) {
    now = line.now * 1000;
    const said = await judge(library, loaded, line);
    const agrees = said === undefined || said === line.expect.verified;
    if (!agrees) {
      differences++;
      console.log(`${name}: ${line.case}: ${says} ${said ? "takes" : "refuses"} it`);
    }
    const common = (more) => ({ ...line, case: `sdk_node ${line.case}`, basis: "sdk", ...more });
    if (line.case.startsWith("sample ") && line.expect.verified) {
      if (library.sign) {
        const signed = await library.sign(loaded, prepare(line, line.secrets[0]));
        const headers = line.headers.map(([key, value]) => [key, signed[key.toLowerCase()] ?? value]);
        if (JSON.stringify(headers) !== JSON.stringify(line.headers)) {
          differences++;
          console.log(`${name}: ${line.case}: ${says} signs otherwise`);
        }
        result.push(common({ headers, made_by: says, checked_by: says }));
      } else if (said) {
        result.push(common({ checked_by: says }));
      }
    } else if (line.case.startsWith("tampered ") && said === false && !line.expect.verified && !refusal) {
      refusal = true;
      result.push(common({ checked_by: says }));
    }
  }
  // What the samples have not: letters beyond ASCII, escapes and white space, where they are no part of the id.
  const plain = ours.find((line) => line.case.startsWith("sample ") && line.expect.status === "event");
  const text = plain && Buffer.from(plain.body_base64, "base64").toString();
  if (library.sign && name !== "workos" && text?.startsWith("{") && !plain.expect.events.some(({ id }) => /[0-9a-f]{64}/.test(id ?? ""))) {
    const body = text.replace("{", '{ "note" : "h\u00e9 \\u00e9 \\/ \u{1d11e}\u2028 %2B",\r\n\t') + "\n";
    const line = { ...plain, body_base64: base64(body) };
    now = line.now * 1000;
    const signed = await library.sign(loaded, prepare(line, line.secrets[0]));
    line.headers = line.headers.map(([key, value]) => [key, signed[key.toLowerCase()] ?? value]);
    result.push({ ...line, case: "sdk_node odd text", basis: "sdk", made_by: says });
    const bad = { ...line, body_base64: base64(body.slice(0, -1)), expect: { verified: false, status: "rejected" } };
    result.push({ ...bad, case: "sdk_node odd text, its end cut", basis: "sdk", made_by: says });
  }
  const kept = lines.filter((line) => !line.case.startsWith("sdk_node "));
  writeFileSync(path, [...kept, ...result].map((line) => JSON.stringify(line) + "\n").join(""));
  console.log(`${name}: ${result.length} lines of ${says}, ${ours.length} cases judged`);
}
console.log(`${differences} differences`);
process.exit(0);
