//! Compiles the bytes of a schema to a validator, behind the cost bound, and shares it between
//! tools with equal schemas.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Retrieve, Uri, Validator};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::defaulted_members::make_defaulted_members_optional;
use crate::dialect;
use crate::member_pattern::pattern_options;
use crate::mismatch::{Mismatch, SchemaVerdict, collect};
use crate::shape::SchemaShape;
use crate::unusable::UnusableSchema;
use crate::validator_terms::use_validator_terms;

/// The digest of a schema's bytes.
type SchemaDigest = [u8; 32];

/// Bytes of a schema.
const MAX_SCHEMA_BYTES: usize = 256 << 10;

/// A compiled schema.
pub struct CompiledSchema {
    validator: Validator,
    shape: SchemaShape,
}

impl CompiledSchema {
    /// Reads and compiles. Not for the hot path.
    ///
    /// # Errors
    ///
    /// The obstacle to using it.
    pub fn compile(bytes: &[u8]) -> Result<Self, UnusableSchema> {
        if bytes.len() > MAX_SCHEMA_BYTES {
            return Err(UnusableSchema::TooLong);
        }
        let mut schema: Value = serde_json::from_slice(bytes).map_err(|error| {
            // The reader itself stops at 128 levels.
            if error.to_string().starts_with("recursion limit") {
                UnusableSchema::TooDeep
            } else {
                UnusableSchema::Invalid
            }
        })?;
        let draft = dialect::of(&schema)?;
        let shape = SchemaShape::of(&schema)?;
        make_defaulted_members_optional(&mut schema);
        use_validator_terms(&mut schema)?;
        let validator = jsonschema::options()
            .with_draft(draft)
            .with_retriever(RefusingRetriever)
            .with_pattern_options(pattern_options())
            // Only drafts before 2019-09 would have it checked, by rules that servers do not share.
            .should_validate_formats(false)
            .build(&schema)
            .map_err(|error| {
                let is_of_pattern = matches!(
                    error.kind(),
                    ValidationErrorKind::Format { format } if format == "regex"
                );
                match (is_of_pattern, shape.is_for_clients()) {
                    (true, true) => UnusableSchema::Pattern,
                    (true, false) => UnusableSchema::PatternSyntax,
                    (false, _) => UnusableSchema::Invalid,
                }
            })?;
        Ok(Self { validator, shape })
    }

    /// Validates arguments of `length` bytes of JSON against the schema, and their properties
    /// against the names in it.
    pub(crate) fn verdict_of_arguments(&self, value: &Value, length: usize) -> SchemaVerdict {
        if !self.shape.is_affordable(value, length) {
            return SchemaVerdict::Unknown;
        }
        match self.shape.case_variant(value) {
            Some(mismatch) => SchemaVerdict::Fails(vec![mismatch]),
            None => self.validate(value),
        }
    }

    /// True if the schema names the property of arguments that these steps of a JSON pointer lead
    /// to.
    #[must_use]
    pub fn names(&self, steps: &[&str]) -> bool {
        self.shape.names(steps)
    }

    /// Validates a value of `length` bytes of JSON against the schema.
    pub(crate) fn verdict(&self, value: &Value, length: usize) -> SchemaVerdict {
        if !self.shape.is_affordable(value, length) {
            return SchemaVerdict::Unknown;
        }
        self.validate(value)
    }

    /// The verdict about a value that is affordable.
    fn validate(&self, value: &Value) -> SchemaVerdict {
        if self.validator.is_valid(value) {
            return SchemaVerdict::Fits;
        }
        if !self.shape.is_reportable(value) {
            let text = "it does not match, and the schema has too many alternatives to say where";
            return SchemaVerdict::Fails(vec![Mismatch::whole(text)]);
        }
        let mismatches = collect(self.validator.iter_errors(value));
        if mismatches.is_empty() {
            SchemaVerdict::Fails(vec![Mismatch::whole("it does not match")])
        } else {
            SchemaVerdict::Fails(mismatches)
        }
    }
}

impl fmt::Debug for CompiledSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledSchema")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// A retriever that fetches no reference, with any features of the validator.
struct RefusingRetriever;

impl Retrieve for RefusingRetriever {
    fn retrieve(
        &self,
        _uri: &Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("nothing is fetched".into())
    }
}

/// The usability of a tool's schema.
#[derive(Clone, Debug)]
pub enum ToolSchema {
    /// There is no schema.
    None,
    /// It cannot be used.
    Unchecked(UnusableSchema),
    /// It can.
    Checked(Arc<CompiledSchema>),
}

impl ToolSchema {
    /// The result of compiling the schema; absent if there is none.
    #[must_use]
    pub fn usable(&self) -> Option<Result<(), UnusableSchema>> {
        match self {
            Self::None => None,
            Self::Unchecked(why) => Some(Err(*why)),
            Self::Checked(_) => Some(Ok(())),
        }
    }

    /// True if the validators of clients can use it, as far as weir can tell: they compile it, and
    /// one that they cannot compile would take the whole list from them.
    #[must_use]
    pub fn is_for_clients(&self) -> bool {
        match self {
            Self::None => true,
            Self::Unchecked(why) => !why.is_fault_of_schema(),
            Self::Checked(schema) => schema.shape.is_for_clients(),
        }
    }
}

/// Compiled schemas by their bytes. The references are weak: a schema lives as long as a tool that
/// has it.
#[derive(Debug, Default)]
pub struct SchemaCache(Mutex<CachedSchemas>);

#[derive(Debug, Default)]
struct CachedSchemas {
    by_bytes: HashMap<SchemaDigest, Weak<CompiledSchema>>,
    /// The number of entries that triggers the next removal of dead ones.
    sweep_at: usize,
}

const FIRST_SWEEP: usize = 1024;

impl SchemaCache {
    /// The compiled schema of these bytes, shared with equal ones.
    pub fn of(&self, bytes: &[u8]) -> ToolSchema {
        let key = Sha256::digest(bytes).into();
        if let Some(known) = self.0.lock().by_bytes.get(&key).and_then(Weak::upgrade) {
            return ToolSchema::Checked(known);
        }
        // Compiled without the lock: two that compile the same at once do no harm.
        match CompiledSchema::compile(bytes) {
            Ok(schema) => {
                let schema = Arc::new(schema);
                self.0.lock().keep(key, &schema);
                ToolSchema::Checked(schema)
            }
            Err(why) => ToolSchema::Unchecked(why),
        }
    }
}

impl CachedSchemas {
    fn keep(&mut self, key: SchemaDigest, schema: &Arc<CompiledSchema>) {
        self.by_bytes.insert(key, Arc::downgrade(schema));
        if self.by_bytes.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.by_bytes.retain(|_, schema| schema.strong_count() > 0);
            self.sweep_at = self.by_bytes.len() * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_schemas_share_one_validator_and_dead_ones_are_forgotten() {
        let cache = SchemaCache::default();
        let (ToolSchema::Checked(one), ToolSchema::Checked(two)) =
            (cache.of(b"{}"), cache.of(b"{}"))
        else {
            panic!("an empty schema is usable")
        };
        assert!(Arc::ptr_eq(&one, &two));
        for at in 0..FIRST_SWEEP * 3 {
            assert!(matches!(
                cache.of(format!("{{\"maximum\":{at}}}").as_bytes()),
                ToolSchema::Checked(_)
            ));
        }
        assert!(cache.0.lock().by_bytes.len() <= FIRST_SWEEP);
    }
}
