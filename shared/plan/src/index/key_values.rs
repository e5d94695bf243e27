//! The values under which an index finds one object.

use anteroom_jmespath::{
    Budget, Environment, EvalError, MissingKey, Node as _, Parameters, Shape, Value,
};
use anteroom_view::{Object, ViewNode};

use crate::{IndexKey, KeyProgram, Language, Leaf, Scalar};

/// Values under which an index finds one object. An object with more is a candidate in every query.
const VALUES_MAX: usize = 16 * 1024;

/// Returns the budget for the key of an object whose body has so many bytes. An object whose key costs more is a candidate
/// in every query. So the budget grows with the object: otherwise a few large ones would be looked through by each query.
pub(crate) fn key_budget(body_bytes: usize) -> Budget {
    // An empty element takes a byte in the body, and two steps.
    const PER_BYTE: u64 = 4;
    /// The memory of a text that is parsed, for each byte of the object: usual JSON takes less.
    const JSON_PER_BYTE: u64 = 16;
    let more = PER_BYTE * body_bytes as u64;
    Budget {
        steps: 20_000 + more,
        depth: anteroom_jmespath::DEPTH_MAX,
        built_bytes: 64 * 1024 + more,
        json_bytes: 1024 * 1024 + JSON_PER_BYTE * body_bytes as u64,
    }
}

impl IndexKey {
    /// The environment in which a key is evaluated on one object.
    pub(super) fn environment<'e>(
        &self,
        language: Language,
        parameters: &'e dyn Parameters,
        body_bytes: usize,
    ) -> Environment<'e> {
        Environment {
            functions: language.functions,
            parameters,
            missing_key: match self.missing_key_is_error {
                true => MissingKey::Error,
                false => MissingKey::Null,
            },
            budget: key_budget(body_bytes),
            seed: None,
        }
    }
}

/// The values of one object's key.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KeyValues {
    /// The values in order, each once.
    pub(super) values: Vec<Scalar>,
    /// The object is a candidate in every query: the key failed, or has parts that cannot be looked up.
    pub(super) always: bool,
}

impl KeyValues {
    pub(super) fn of(object: &Object, key: &IndexKey, language: Language) -> Self {
        let mut of_object = Self::default();
        of_object.take(object, key, language);
        if of_object.values.len() > VALUES_MAX {
            of_object.always = true;
            of_object.values = Vec::new();
        }
        of_object.values.sort_unstable();
        of_object.values.dedup();
        of_object
    }

    fn take(&mut self, object: &Object, of: &IndexKey, language: Language) {
        let expression = match of.key.program() {
            KeyProgram::Query(expression) => expression,
            KeyProgram::Path(path) => {
                let values = &mut self.values;
                let mut each = |value| {
                    // The next one tells that they are too many.
                    if values.len() <= VALUES_MAX {
                        values.push(value);
                    }
                };
                self.always = path.values(object.node(), &mut each);
                return;
            }
        };
        let environment = of.environment(language, &(), object.body().len());
        let node = ViewNode::listed(object, of.bare);
        let reading = of.key.reading();
        // What is no object is taken apart by `[]`, which a key takes for nothing to do. Asked of the body
        // itself: to count the fields that a list shows takes a walk through all of it.
        if !matches!(object.node().shape(), Shape::Object(_)) {
            self.always = true;
            return;
        }
        match expression.evaluate(node, &environment) {
            // A comparison takes it for null; what takes a list or an object does not.
            Err(EvalError::MissingKey { .. })
                if reading.depth == 0 && reading.leaf == Leaf::Value =>
            {
                self.values.push(Scalar::Null);
            }
            Err(_) => self.always = true,
            Ok(value) => self.read(&value, reading.depth, reading.leaf),
        }
    }

    fn read(&mut self, value: &Value<'_, ViewNode<'_>>, depth: u8, leaf: Leaf) {
        match (depth.checked_sub(1), value.shape()) {
            (Some(depth), Shape::Array(_)) => {
                value
                    .elements()
                    .for_each(|element| self.read(&element, depth, leaf));
            }
            (Some(_), _) => self.always = true,
            (None, shape) if leaf == Leaf::Value => self.push(Scalar::of(shape)),
            (None, Shape::Object(_)) => self.entries(value, leaf),
            (None, _) => self.always = true,
        }
    }

    fn entries(&mut self, value: &Value<'_, ViewNode<'_>>, leaf: Leaf) {
        let mut entries = value.entries();
        let entry = |(name, value): (anteroom_jmespath::Text<'_>, Value<'_, ViewNode<'_>>)| {
            Scalar::of(value.shape()).map(|value| Scalar::entry(&name, value))
        };
        match leaf {
            Leaf::FirstEntry => self.push(entries.next().and_then(entry)),
            _ => entries.for_each(|one| self.push(entry(one))),
        }
    }

    fn push(&mut self, value: Option<Scalar>) {
        match value {
            Some(Scalar::Float(bits)) if !f64::from_bits(bits).is_finite() => self.always = true,
            Some(value) => self.values.push(value),
            None => self.always = true,
        }
    }
}
