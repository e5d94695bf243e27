//! Reads expressions, charged by their classes: a class of Unicode has hundreds of ranges, and one of a million
//! characters takes milliseconds where upper and lower case are the same.

use regex_syntax::{
    ast::{
        self, Ast, ClassBracketed, ClassSet, ClassSetItem, Flag, FlagsItemKind, GroupKind, Visitor,
    },
    hir::{Hir, translate::TranslatorBuilder},
};

use super::{CompileError, PatternError};

/// The most groups and classes within each other.
const NESTING_MAX: u32 = 50;

/// Steps for each byte of an expression.
const STEPS_PER_BYTE: usize = 16;

/// The most ranges of a class of Unicode.
const UNICODE_CLASS_RANGES: usize = 800;

/// The ranges of a class that are moved in a step, when one more is added.
const MOVED_RANGES_PER_STEP: usize = 4;

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
    /// The characters of all ranges and classes, each as often as its upper and lower case may be looked up.
    characters: usize,
    /// A part of the expression has upper and lower case as the same.
    ignores_case: bool,
}

/// The most that a class can be.
#[derive(Clone, Copy, Default)]
struct ClassSize {
    characters: usize,
    ranges: usize,
}

impl ClassSize {
    const UNICODE: Self = Self {
        characters: CHARACTERS,
        ranges: UNICODE_CLASS_RANGES,
    };

    /// A class of few characters.
    fn few(characters: usize) -> Self {
        let ranges = 1;
        Self { characters, ranges }
    }

    fn and(self, other: Self) -> Self {
        Self {
            characters: CHARACTERS.min(self.characters + other.characters),
            ranges: self.ranges + other.ranges,
        }
    }

    fn negated(self, is_negated: bool) -> Self {
        match is_negated {
            true => Self {
                characters: CHARACTERS,
                ranges: self.ranges + 1,
            },
            false => self,
        }
    }
}

impl ClassCost {
    fn flags(&mut self, flags: &ast::Flags) {
        let ignores_case = FlagsItemKind::Flag(Flag::CaseInsensitive);
        self.ignores_case |= flags.items.iter().any(|item| item.kind == ignores_case);
    }

    fn unicode(&mut self) -> ClassSize {
        self.steps += UNICODE_CLASS_STEPS;
        self.folded(ClassSize::UNICODE)
    }

    fn bracketed(&mut self, class: &ClassBracketed) -> ClassSize {
        let inside = self.set(&class.kind);
        self.folded(inside).negated(class.negated)
    }

    fn set(&mut self, set: &ClassSet) -> ClassSize {
        match set {
            ClassSet::Item(item) => self.item(item),
            ClassSet::BinaryOp(of) => {
                let sides = [self.set(&of.lhs), self.set(&of.rhs)];
                let [left, right] = sides.map(|side| self.folded(side));
                let both = left.and(right);
                self.steps += both.ranges;
                both
            }
        }
    }

    fn item(&mut self, item: &ClassSetItem) -> ClassSize {
        match item {
            ClassSetItem::Empty(_) => ClassSize::default(),
            ClassSetItem::Literal(_) => ClassSize::few(1),
            ClassSetItem::Range(range) => {
                let (from, to) = (range.start.c as usize, range.end.c as usize);
                ClassSize::few(1 + to.saturating_sub(from))
            }
            ClassSetItem::Ascii(class) => ClassSize::few(128).negated(class.negated),
            ClassSetItem::Unicode(_) | ClassSetItem::Perl(_) => self.unicode(),
            ClassSetItem::Bracketed(class) => self.bracketed(class),
            ClassSetItem::Union(union) => {
                let mut all = ClassSize::default();
                for item in &union.items {
                    all = all.and(self.item(item));
                    self.steps += all.ranges / MOVED_RANGES_PER_STEP;
                }
                all
            }
        }
    }

    /// Counts the characters whose other case is looked up, and returns the class.
    fn folded(&mut self, class: ClassSize) -> ClassSize {
        self.characters += class.characters;
        class
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
            // `\w` and its like are ranges in what is read here, so no more is known of them.
            Ast::ClassUnicode(_) | Ast::ClassPerl(_) => {
                self.unicode();
            }
            Ast::ClassBracketed(class) => {
                self.bracketed(class);
            }
            _ => {}
        }
        Ok(())
    }
}
