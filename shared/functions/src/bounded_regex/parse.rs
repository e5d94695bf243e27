//! Reads expressions, charged by their classes: a class of Unicode has hundreds of ranges, and one of a million
//! characters takes milliseconds where upper and lower case are the same.

use regex_syntax::{
    ast::{self, Ast, ClassSetItem, Flag, FlagsItemKind, GroupKind, Visitor},
    hir::{Hir, translate::TranslatorBuilder},
};

use super::{CompileError, PATTERN_BYTES_MAX, PatternError};

/// The most groups and classes within each other.
const NESTING_MAX: u32 = 50;

/// Steps for each byte of an expression.
const STEPS_PER_BYTE: usize = 16;

/// Steps for a class of Perl, as in `\w`.
const PERL_CLASS_STEPS: usize = 1_000;

/// Steps for a class of Unicode, as in `\p{L}`.
const UNICODE_CLASS_STEPS: usize = 4_000;

/// The characters whose upper and lower case are looked up in a step.
const FOLDED_PER_STEP: usize = 4;

/// All characters that there are.
const CHARACTERS: usize = 0x11_0000;

/// Reads an expression in the syntax of the `regex` crate. `charge` takes the steps before the work is done.
///
/// # Errors
/// The text is no expression, or `charge` refuses the work.
pub fn parse<E>(
    text: &str,
    charge: &mut impl FnMut(usize) -> Result<(), E>,
) -> Result<Hir, CompileError<E>> {
    let invalid = |error| Err(CompileError::Invalid(error));
    if text.len() > PATTERN_BYTES_MAX {
        return invalid(PatternError::TooLong);
    }
    charge(text.len() * STEPS_PER_BYTE).map_err(CompileError::TooCostly)?;
    let mut parser = ast::parse::ParserBuilder::new();
    let tree = match parser.nest_limit(NESTING_MAX).build().parse(text) {
        Ok(tree) => tree,
        Err(error) => return invalid(PatternError::Syntax(error.kind().to_string())),
    };
    let Ok(steps) = ast::visit(&tree, ClassCost::default());
    charge(steps).map_err(CompileError::TooCostly)?;
    match TranslatorBuilder::new().build().translate(text, &tree) {
        Ok(read) => Ok(read),
        Err(error) => invalid(PatternError::Syntax(error.kind().to_string())),
    }
}

/// The cost of an expression's classes.
#[derive(Default)]
struct ClassCost {
    steps: usize,
    /// The characters of all ranges and classes.
    characters: usize,
    /// A part of the expression has upper and lower case as the same.
    ignores_case: bool,
}

impl ClassCost {
    fn flags(&mut self, flags: &ast::Flags) {
        let ignores_case = FlagsItemKind::Flag(Flag::CaseInsensitive);
        self.ignores_case |= flags.items.iter().any(|item| item.kind == ignores_case);
    }

    fn unicode_class(&mut self) {
        self.steps += UNICODE_CLASS_STEPS;
        self.characters += CHARACTERS;
    }
}

impl Visitor for ClassCost {
    type Output = usize;
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<usize, Self::Err> {
        let folded = match self.ignores_case {
            true => self.characters / FOLDED_PER_STEP,
            false => 0,
        };
        Ok(self.steps + folded)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        match ast {
            Ast::Flags(set) => self.flags(&set.flags),
            Ast::Group(group) => {
                if let GroupKind::NonCapturing(flags) = &group.kind {
                    self.flags(flags);
                }
            }
            Ast::ClassUnicode(_) => self.unicode_class(),
            Ast::ClassPerl(_) => self.steps += PERL_CLASS_STEPS,
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        match item {
            ClassSetItem::Unicode(_) => self.unicode_class(),
            ClassSetItem::Perl(_) => self.steps += PERL_CLASS_STEPS,
            ClassSetItem::Range(range) => {
                let (from, to) = (range.start.c as usize, range.end.c as usize);
                self.characters += to.saturating_sub(from);
            }
            _ => {}
        }
        Ok(())
    }
}
