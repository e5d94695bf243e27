//! Sealing: what the log keeps of Secrets, and what travels of them, can be read by the holders of a
//! key alone. The bus, its disk and its backups never hold one in the clear.
//!
//! Two seals, for two ways, each with keys of its own:
//!
//! - [`Keys::seal`] and [`Keys::open`], for bodies in the log: AES-256-GCM under a key that is mounted
//!   in watchers and replicas. A sealed body is bound to the view and the object's key, so that it cannot be passed
//!   off as another object's.
//! - [`Keys::ask`] and [`Keys::open_question`], for questions about Secrets and their answers: under a key that is
//!   mounted in webhooks too. Nobody else can ask, and nobody else understands question or answer. See `asking`.
//!
//! [`MacKey`] makes texts that only holders of a key can make: the token in the paths of a webhook.
//!
//! | module | content |
//! |---|---|
//! | `keys` | [`Keys`]: keys that change while they are used |
//! | `ring`, `args` | the keys of a file; the options that name it |
//! | `body` | a sealed body in the log |
//! | `asking` | questions about Secrets, and their answers |
//! | `mac`, `identity` | texts only key holders can make; names |
//! | `error` | errors of sealing, opening and reading keys |
//!
//! A body's seal does not say who sealed: whoever may write to the bus may put something else in a body's place that is
//! no seal. The bus's permissions see to that.
//!
//! A sealed body begins with 0xC1, the one byte that no MessagePack value begins with. So it is told from an
//! open body without knowing its view. The nonce is random. The key file is read again every 10 seconds; its
//! first key seals, and all of them open. So a new key is added last, then moved to the front, without a gap.
//! A key seals about 2³² bodies before it should be changed.

mod args;
mod asking;
mod body;
mod error;
mod identity;
mod keys;
mod mac;
mod ring;

pub use args::{AskerArgs, SealArgs};
pub use asking::{Answering, AskedOf, QuestionSecret, is_answer, is_question, withheld};
pub use body::{MAGIC, is_sealed};
pub use error::{KeysError, SealError};
pub use identity::identity;
pub use keys::{Keys, POLL_INTERVAL};
pub use mac::{MacKey, is_equal};
pub use ring::{KEY_BYTES, KEY_ID_BYTES_MAX, KEYS_FILE_BYTES_MAX, KeyRing};
