//! The ceiling: verifies, reads the id, stores nothing. Settings: `LISTEN`, `SECRET`.

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use compare::{Head, setting, verify};

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let secret = web::Data::new(setting("SECRET"));
    HttpServer::new(move || {
        App::new()
            .app_data(secret.clone())
            .route("/webhooks/stripe", web::post().to(receive))
    })
    .bind(setting("LISTEN"))?
    .run()
    .await
}

async fn receive(request: HttpRequest, body: web::Bytes, secret: web::Data<String>) -> HttpResponse {
    if !verify(&request, &body, &secret) {
        return HttpResponse::Unauthorized().finish();
    }
    match serde_json::from_slice::<Head<'_>>(&body) {
        Ok(_) => HttpResponse::Ok()
            .content_type("application/json")
            .body(r#"{"received":true}"#),
        Err(_) => HttpResponse::BadRequest().finish(),
    }
}
