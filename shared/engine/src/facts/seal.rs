//! Questions about Secrets, which are sealed with an asker key, and their answers.

use anteroom_model::FactError;
use anteroom_seal::{AskedOf, Keys, QuestionSecret, SealError, is_answer};
use bytes::Bytes;

/// A request body as sent, with the secret that opens the reply.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) body: Bytes,
    asked: Option<QuestionSecret>,
}

impl Question {
    /// Returns a question in the clear.
    pub(super) fn open(body: Bytes) -> Self {
        Self { body, asked: None }
    }

    /// Seals a question with the first of these keys.
    ///
    /// # Errors
    /// [`FactError::AskerUnknown`] if there is no key.
    pub(super) fn sealed(keys: &Keys, of: AskedOf<'_>, body: &[u8]) -> Result<Self, FactError> {
        let (body, asked) = keys.ask(of, body).map_err(|error| failed(&error))?;
        Ok(Self {
            body,
            asked: Some(asked),
        })
    }

    /// Opens an answer. To a sealed question only a refusal of the question may come in the clear, which `is_refusal`
    /// recognises: any other clear answer may be forged.
    pub(super) fn answer(
        &self,
        answer: Bytes,
        is_refusal: impl Fn(&[u8]) -> bool,
    ) -> Result<Bytes, FactError> {
        match &self.asked {
            None => Ok(answer),
            Some(asked) if is_answer(&answer) => {
                asked.open(&answer).map_err(|error| failed(&error))
            }
            Some(_) if is_refusal(&answer) => Ok(answer),
            Some(_) => Err(FactError::AskerUnknown {
                message: "the answer was not encrypted, so it may be forged: look who else answers on NATS".to_owned(),
            }),
        }
    }
}

fn failed(error: &SealError) -> FactError {
    FactError::AskerUnknown {
        message: error.to_string(),
    }
}
