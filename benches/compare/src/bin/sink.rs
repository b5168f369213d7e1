//! Takes everything and says 200: the target of a handler. Settings: `LISTEN`.

use actix_web::{App, HttpResponse, HttpServer, web};
use compare::setting;

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    HttpServer::new(|| App::new().default_service(web::to(take)))
        .bind(setting("LISTEN"))?
        .run()
        .await
}

async fn take(_body: web::Bytes) -> HttpResponse {
    HttpResponse::Ok().finish()
}
