//! `Upgrade` is ignored, as RFC 9110, section 7.8 allows. actix takes everything that follows a request with
//! `Upgrade: websocket` for its body, whatever its length says; here the length counts again. The connection is closed
//! after the answer, because that rest is never read as a request.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use actix_web::{
    HttpMessage as _,
    dev::{Payload, ServiceRequest},
    error::PayloadError,
    http::header,
    web::Bytes,
};
use futures_util::Stream;

/// Gives a request with `Upgrade` the body that it would have without. Others cost a look.
pub(super) fn ignore(request: &mut ServiceRequest) {
    let headers = request.headers();
    // Chunks say themselves where they end.
    if !headers.contains_key(header::UPGRADE) || headers.contains_key(header::TRANSFER_ENCODING) {
        return;
    }
    let length = headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.trim().parse().ok());
    let payload = request.take_payload();
    request.set_payload(Payload::Stream {
        payload: Box::pin(Counted {
            payload,
            left: length.unwrap_or(0),
        }),
    });
}

/// The first bytes of what comes.
struct Counted {
    payload: Payload,
    left: u64,
}

impl Stream for Counted {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(Pin::new(&mut self.payload).poll_next(context)) {
            Some(Ok(mut chunk)) => {
                chunk.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= chunk.len() as u64;
                Some(Ok(chunk))
            }
            Some(Err(error)) => Some(Err(error)),
            None => Some(Err(PayloadError::Incomplete(None))),
        })
    }
}
