//! Static types.

/// The type of a subexpression, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nobody knows before there is an object.
    Any,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    List,
    Map,
    Duration,
    Timestamp,
    Type,
    Optional,
    Quantity,
    Url,
    Ip,
    Cidr,
    Semver,
    Format,
    /// An image's name, taken apart.
    Image,
    /// `Object{…}`, or a part of one.
    Object,
    /// The value of `JSONPatch{…}`: a step of a JSON patch.
    Patch,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Any => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::Bytes => "bytes",
            Self::List => "list",
            Self::Map => "map",
            Self::Duration => "duration",
            Self::Timestamp => "timestamp",
            Self::Type => "type",
            Self::Optional => "optional",
            Self::Quantity => "quantity",
            Self::Url => "url",
            Self::Ip => "ip",
            Self::Cidr => "cidr",
            Self::Semver => "semver",
            Self::Format => "format",
            Self::Image => "image",
            Self::Object => "Object",
            Self::Patch => "JSONPatch",
        }
    }

    pub(crate) fn is_number(self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Returns whether a value of this type can have one of the types `kinds`.
    pub(crate) fn can_be(self, kinds: &[Self]) -> bool {
        self == Self::Any || kinds.contains(&self)
    }

    /// Returns the type of both, if it is the same.
    pub(crate) fn or(self, other: Self) -> Self {
        match self == other {
            true => self,
            false => Self::Any,
        }
    }
}
