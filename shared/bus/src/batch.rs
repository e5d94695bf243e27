//! The limits of a batch, which both buses check before they send anything.

use anteroom_model::{
    Op, ViewId,
    limits::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, MESSAGE_BYTES_MAX},
};
use anteroom_wire::envelope::{Envelope, Record};

use crate::BusError;

/// Refuses a batch over its limits before anything of it is sent.
pub(crate) fn check(batch: &[Envelope]) -> Result<(), BusError> {
    if batch.is_empty() {
        return Err(BusError::Refused {
            message: "a batch has no records".to_owned(),
        });
    }
    if batch.len() > BATCH_MESSAGES_MAX {
        return Err(BusError::Refused {
            message: format!(
                "a batch of {} records is over the limit of {BATCH_MESSAGES_MAX}",
                batch.len()
            ),
        });
    }
    let mut bytes = 0;
    for envelope in batch {
        let body_bytes = body_bytes(envelope);
        check_message(body_bytes)?;
        bytes += body_bytes;
    }
    if bytes > BATCH_BYTES_MAX && batch.len() > 1 {
        return Err(BusError::TooLarge {
            bytes,
            bytes_max: BATCH_BYTES_MAX,
        });
    }
    Ok(())
}

/// Refuses a message over [`MESSAGE_BYTES_MAX`].
pub(crate) fn check_message(bytes: usize) -> Result<(), BusError> {
    if bytes > MESSAGE_BYTES_MAX {
        return Err(BusError::TooLarge {
            bytes,
            bytes_max: MESSAGE_BYTES_MAX,
        });
    }
    Ok(())
}

/// The refusal to purge a view before its `Dropped` control record: readers would keep objects that the
/// log no longer has.
pub(crate) fn not_dropped(view: &ViewId) -> BusError {
    BusError::Refused {
        message: format!("view {view} is not dropped: append its `Dropped` control record first"),
    }
}

/// Control records are small, and of one size within a few hundred bytes: not counted.
fn body_bytes(envelope: &Envelope) -> usize {
    match &envelope.record {
        Record::Delta { delta, .. } => match &delta.op {
            Op::Put(body) => body.len(),
            Op::Delete => 0,
        },
        Record::Control(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{Delta, Epoch, ObjectKey, ResourceVersion};
    use bytes::Bytes;

    use super::*;

    fn put(bytes: usize) -> Envelope {
        Envelope {
            record: Record::Delta {
                view: ViewId::new("a.v1"),
                delta: Delta {
                    key: ObjectKey::new("", "a"),
                    epoch: Epoch::new(1, 0),
                    version: ResourceVersion::new("1"),
                    op: Op::Put(Bytes::from(vec![0; bytes])),
                },
            },
            trace: None,
        }
    }

    #[test]
    fn a_batch_is_refused_when_empty_or_over_its_limits() {
        assert!(matches!(check(&[]), Err(BusError::Refused { .. })));
        assert!(check(&vec![put(1); BATCH_MESSAGES_MAX]).is_ok());
        assert!(matches!(
            check(&vec![put(1); BATCH_MESSAGES_MAX + 1]),
            Err(BusError::Refused { .. })
        ));
        assert!(check(&[put(BATCH_BYTES_MAX - 1), put(1)]).is_ok());
        assert!(matches!(
            check(&[put(BATCH_BYTES_MAX), put(1)]),
            Err(BusError::TooLarge { .. })
        ));
        assert!(check(&[put(MESSAGE_BYTES_MAX)]).is_ok(), "alone it may");
        assert!(matches!(
            check(&[put(MESSAGE_BYTES_MAX + 1)]),
            Err(BusError::TooLarge { .. })
        ));
    }
}
