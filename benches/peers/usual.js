// The usual design in Node: fastify, a pool of 20, one INSERT … ON CONFLICT DO NOTHING for each request.
// Settings: LISTEN, SECRET, DATABASE_URL.
import { createHmac, timingSafeEqual } from "node:crypto";
import Fastify from "fastify";
import pg from "pg";

const { LISTEN, SECRET, DATABASE_URL } = process.env;
const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 20 });
await pool.query(`create table if not exists node_events (
  id bigint generated always as identity primary key,
  provider text not null,
  event_id text not null,
  event_type text not null,
  payload jsonb not null,
  status text not null default 'pending',
  created_at timestamptz not null default now(),
  unique (provider, event_id)
)`);

function verifies(header, body) {
  const parts = Object.fromEntries((header ?? "").split(",").map((part) => part.split("=", 2)));
  if (!parts.t || !parts.v1 || Math.abs(Date.now() / 1000 - Number(parts.t)) > 300) return false;
  const expected = createHmac("sha256", SECRET).update(`${parts.t}.`).update(body).digest();
  const given = Buffer.from(parts.v1, "hex");
  return given.length === expected.length && timingSafeEqual(given, expected);
}

const app = Fastify();
app.addContentTypeParser("application/json", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
app.post("/webhooks/stripe", async (request, reply) => {
  if (!verifies(request.headers["stripe-signature"], request.body)) return reply.code(401).send();
  const event = JSON.parse(request.body);
  await pool.query(
    "insert into node_events (provider, event_id, event_type, payload) values ('stripe', $1, $2, $3) on conflict (provider, event_id) do nothing",
    [event.id, event.type, request.body.toString()],
  );
  return { received: true };
});
const [host, port] = LISTEN.split(":");
await app.listen({ host, port: Number(port) });
