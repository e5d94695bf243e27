//! The functions of the JMESPath specification.

use std::sync::LazyLock;

use crate::function::{FunctionTable, Signature, Types};

mod collections;
mod conversions;
mod numbers;
mod ordering;
mod strings;

impl FunctionTable {
    /// The 26 functions of the JMESPath specification.
    pub fn standard() -> Self {
        let mut table = FunctionTable::empty();
        register(&mut table);
        table
    }

    /// One table of the standard functions for all.
    pub fn standard_shared() -> &'static Self {
        static STANDARD: LazyLock<FunctionTable> = LazyLock::new(FunctionTable::standard);
        &STANDARD
    }
}

fn register(table: &mut FunctionTable) {
    let ordered = Types::ARRAY_OF_NUMBERS | Types::ARRAY_OF_STRINGS;
    let array_or_string = Types::ARRAY | Types::STRING;
    table
        .register("abs", Signature::of([Types::NUMBER]), numbers::abs)
        .register(
            "avg",
            Signature::of([Types::ARRAY_OF_NUMBERS]),
            numbers::avg,
        )
        .register("ceil", Signature::of([Types::NUMBER]), numbers::ceil)
        .register(
            "contains",
            Signature::of([array_or_string, Types::ANY]),
            collections::contains,
        )
        .register(
            "ends_with",
            Signature::of([Types::STRING, Types::STRING]),
            strings::ends_with,
        )
        .register("floor", Signature::of([Types::NUMBER]), numbers::floor)
        .register(
            "join",
            Signature::of([Types::STRING, Types::ARRAY_OF_STRINGS]),
            strings::join,
        )
        .register(
            "keys",
            Signature::of([Types::OBJECT]).order_sensitive(),
            collections::keys,
        )
        .register(
            "length",
            Signature::of([array_or_string | Types::OBJECT]),
            collections::length,
        )
        .register(
            "map",
            Signature::of([Types::EXPRESSION, Types::ARRAY]),
            collections::map,
        )
        .register("max", Signature::of([ordered]), ordering::max)
        .register(
            "max_by",
            Signature::of([Types::ARRAY, Types::EXPRESSION]),
            ordering::max_by,
        )
        .register(
            "merge",
            Signature::of([Types::OBJECT]).repeating_last(),
            collections::merge,
        )
        .register("min", Signature::of([ordered]), ordering::min)
        .register(
            "min_by",
            Signature::of([Types::ARRAY, Types::EXPRESSION]),
            ordering::min_by,
        )
        .register(
            "not_null",
            Signature::of([Types::ANY]).repeating_last(),
            conversions::not_null,
        )
        .register(
            "reverse",
            Signature::of([array_or_string]),
            collections::reverse,
        )
        .register("sort", Signature::of([ordered]), ordering::sort)
        .register(
            "sort_by",
            Signature::of([Types::ARRAY, Types::EXPRESSION]),
            ordering::sort_by,
        )
        .register(
            "starts_with",
            Signature::of([Types::STRING, Types::STRING]),
            strings::starts_with,
        )
        .register(
            "sum",
            Signature::of([Types::ARRAY_OF_NUMBERS]),
            numbers::sum,
        )
        .register(
            "to_array",
            Signature::of([Types::ANY]),
            conversions::to_array,
        )
        .register(
            "to_number",
            Signature::of([Types::ANY]),
            conversions::to_number,
        )
        .register(
            "to_string",
            Signature::of([Types::ANY]).order_sensitive(),
            conversions::to_string,
        )
        .register("type", Signature::of([Types::ANY]), conversions::type_name)
        .register(
            "values",
            Signature::of([Types::OBJECT]).order_sensitive(),
            collections::values,
        );
}
