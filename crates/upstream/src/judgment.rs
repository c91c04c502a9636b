//! What a whole result means to the call it is for.

use bytes::Bytes;
use weir_core::reply::{End, Payload};
use weir_core::{CapabilityClass, FailureKind};
use weir_era::hop::{Ear, Ending, Tongue};

use crate::site::Site;

/// Who is listening: the server's tongue, the call's ear, and what its client can be asked.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) tongue: Tongue,
    pub(crate) ear: Ear,
    pub(crate) class: CapabilityClass,
}

/// The end that a whole result is.
pub(crate) fn judge(site: &Site, listener: &Listener, result: Bytes) -> End {
    match listener.tongue.ending(&result, true) {
        Ending::Complete => End::Complete(Payload::Whole(result)),
        Ending::InputRequired if listener.tongue.may_ask(listener.class, &result) => {
            End::InputRequired(Payload::Whole(result))
        }
        Ending::InputRequired => {
            let text = "The upstream asks for input that the client did not say it can give";
            site.fail(FailureKind::BadAnswer, text).into()
        }
        Ending::Unknown => site.fail(FailureKind::BadAnswer, "The upstream's result is of an unknown type").into(),
    }
}
