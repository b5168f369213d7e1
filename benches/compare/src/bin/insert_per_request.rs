//! The usual design: one `INSERT … ON CONFLICT DO NOTHING` for each request, on a pool of 20 connections, and the answer
//! after it. Settings: `LISTEN`, `SECRET`, `DATABASE_URL`.

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use compare::{Head, setting, verify};
use sqlx::{PgPool, postgres::PgPoolOptions};

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let pool = PgPoolOptions::new()
        .max_connections(20)
        .connect(&setting("DATABASE_URL"))
        .await
        .expect("the database");
    sqlx::raw_sql(
        "create table if not exists usual_events (
            id bigint generated always as identity primary key,
            provider text not null,
            event_id text not null,
            event_type text not null,
            payload bytea not null,
            status text not null default 'pending',
            created_at timestamptz not null default now(),
            unique (provider, event_id)
        )",
    )
    .execute(&pool)
    .await
    .expect("the table");
    let (secret, pool) = (web::Data::new(setting("SECRET")), web::Data::new(pool));
    HttpServer::new(move || {
        App::new()
            .app_data(secret.clone())
            .app_data(pool.clone())
            .route("/webhooks/stripe", web::post().to(receive))
    })
    .bind(setting("LISTEN"))?
    .run()
    .await
}

async fn receive(
    request: HttpRequest,
    body: web::Bytes,
    secret: web::Data<String>,
    pool: web::Data<PgPool>,
) -> HttpResponse {
    if !verify(&request, &body, &secret) {
        return HttpResponse::Unauthorized().finish();
    }
    let Ok(head) = serde_json::from_slice::<Head<'_>>(&body) else {
        return HttpResponse::BadRequest().finish();
    };
    let stored = sqlx::query(
        "insert into usual_events (provider, event_id, event_type, payload) values ('stripe', $1, $2, $3)
         on conflict (provider, event_id) do nothing",
    )
    .bind(head.id)
    .bind(head.event_type)
    .bind(&body[..])
    .execute(pool.get_ref())
    .await;
    match stored {
        Ok(_) => HttpResponse::Ok()
            .content_type("application/json")
            .body(r#"{"received":true}"#),
        Err(_) => HttpResponse::ServiceUnavailable().finish(),
    }
}
