//! Limits on the steps and memory of one evaluation.

use anteroom_jmespath::json_memory;

use crate::{
    error::EvalError,
    limits::{BUILT_BYTES_MAX, JSON_BYTES_MAX, STEPS_MAX},
    value::Val,
};

/// Bytes of text that are looked through in one step.
const STEP_BYTES: usize = 32;

/// Entries of a map in which a key is looked up in one step.
const STEP_ENTRIES: usize = 64;

/// The cost of an element of a list, in bytes.
const ELEMENT_BYTES: u64 = size_of::<Val<'static>>() as u64;

/// The rest of the budget of an evaluation, shared by all expressions that are evaluated in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Steps; see [`STEPS_MAX`].
    pub steps: u64,
    /// Bytes that may be built; see [`BUILT_BYTES_MAX`].
    pub built_bytes: u64,
    /// Memory of JSON documents that may be made; see [`JSON_BYTES_MAX`].
    pub json_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            steps: STEPS_MAX,
            built_bytes: BUILT_BYTES_MAX,
            json_bytes: JSON_BYTES_MAX,
        }
    }
}

impl Budget {
    pub(crate) fn step(&mut self) -> Result<(), EvalError> {
        self.steps(1)
    }

    pub(crate) fn steps(&mut self, count: u64) -> Result<(), EvalError> {
        match self.steps.checked_sub(count) {
            Some(left) => {
                self.steps = left;
                Ok(())
            }
            None => {
                // No later step succeeds, even if an operator forgives this error.
                self.steps = 0;
                Err(EvalError::Steps)
            }
        }
    }

    /// Charges the bytes of a text that is looked through.
    pub(crate) fn charge_scan(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.steps((bytes / STEP_BYTES) as u64)
    }

    /// The entries of a map are listed, in a list that is not kept.
    pub(crate) fn entries(&mut self, count: usize) -> Result<(), EvalError> {
        self.steps(count as u64 / 4)
    }

    /// A key is looked up in a map.
    #[inline]
    pub(crate) fn look_up(&mut self, entries: usize) -> Result<(), EvalError> {
        match entries / STEP_ENTRIES {
            0 => Ok(()),
            steps => self.steps(steps as u64),
        }
    }

    /// A key that is a value is looked up in a map.
    pub(crate) fn look_up_value(&mut self, key: &Val<'_>, entries: usize) -> Result<(), EvalError> {
        if let Val::Text(text) = key {
            self.charge_scan(text.len())?;
        }
        self.look_up(entries)
    }

    /// Text is made.
    pub(crate) fn build(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.charge_scan(bytes)?;
        self.take_bytes(bytes as u64)
    }

    /// A list is made.
    pub(crate) fn elements(&mut self, count: usize) -> Result<(), EvalError> {
        self.steps(count as u64 / 4)?;
        self.take_bytes((count as u64).saturating_mul(ELEMENT_BYTES))
    }

    /// A part of a JSON document is made, in so much memory.
    pub(crate) fn json(&mut self, bytes: u64) -> Result<(), EvalError> {
        self.steps(bytes / json_memory::STEP_BYTES)?;
        match self.json_bytes.checked_sub(bytes) {
            Some(left) => {
                self.json_bytes = left;
                Ok(())
            }
            None => {
                self.json_bytes = 0;
                Err(EvalError::Bytes)
            }
        }
    }

    /// A JSON document is made, in so much memory, and not kept.
    pub(crate) fn passing_json(&mut self, bytes: u64) -> Result<(), EvalError> {
        let before = self.json_bytes;
        self.json(bytes)?;
        self.json_bytes = before;
        Ok(())
    }

    /// Returns the memory that one further JSON document may take.
    pub(crate) fn json_bytes_max(&self) -> u64 {
        self.json_bytes.min(json_memory::bytes_within(self.steps))
    }

    fn take_bytes(&mut self, bytes: u64) -> Result<(), EvalError> {
        match self.built_bytes.checked_sub(bytes) {
            Some(left) => {
                self.built_bytes = left;
                Ok(())
            }
            None => {
                self.built_bytes = 0;
                Err(EvalError::Bytes)
            }
        }
    }
}
