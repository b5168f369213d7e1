//! What jaq is given, and what keeps a filter from running for ever: each definition and each iteration takes a step, and a
//! step looks at the clock, the count and the stack. A stop unwinds, because the language can catch errors.

use std::{cell::Cell, fmt, panic::resume_unwind};

use jaq_core::{
    DataT, Lut, Native,
    box_iter::box_once,
    data::HasLut,
    load::{
        self,
        lex::StrPart,
        parse::{BinaryOp, Def, Pattern, Term},
    },
    native::{Fun, bome, v},
    ops::Math,
    path::{Part, Path},
};
use jaq_json::Val;
use tokio::time::Instant;

use super::values;

/// Definitions entered and values iterated over.
pub(super) const STEPS: u64 = 4_000_000;
/// Steps between two looks at the clock.
const LOOK: u64 = 64;
/// How much of the stack recursion may use; `pool` gives twice that.
const STACK: usize = super::pool::STACK / 2;

/// Natives that leave the filter, and those that are replaced here.
const LEFT_OUT: [&str; 7] = [
    "halt",
    "env",
    "debug_empty",
    "stderr_empty",
    "fromjson",
    "tojson",
    "range",
];
/// Definitions that need what is left out.
const WITHOUT: [&str; 4] = ["halt", "halt_error", "stderr", "debug"];
/// The native one iterates without a step.
const RANGE: &str = "def range($from; $to; $by):
    def up: if . < $to then ., (. + $by | up) else [][] end;
    def down: if . > $to then ., (. + $by | down) else [][] end;
    def same: if . != $to then ., (. + $by | same) else [][] end;
    $from | if $by > 0 then up elif $by < 0 then down else same end;";
/// Names that no filter can write.
const STEP: &str = "!step";
const ADD: &str = "!add";
const MUL: &str = "!mul";
const TEXT: &str = "!text";
const OPERAND: &str = "$!operand";

/// The data of a run.
pub(super) struct Kind;

impl DataT for Kind {
    type V<'a> = Val;
    type Data<'a> = &'a Run<'a>;
}

pub(super) struct Run<'a> {
    pub(super) lut: &'a Lut<Kind>,
    pub(super) until: Instant,
    pub(super) steps: Cell<u64>,
    /// Where the stack was at the beginning.
    pub(super) stack: usize,
}

impl<'a> HasLut<'a, Kind> for &'a Run<'a> {
    fn lut(&self) -> &'a Lut<Kind> {
        self.lut
    }
}

/// Why a run was ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stop {
    Time,
    Steps,
    Depth,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time => write!(
                f,
                "it runs for more than {}",
                crate::units::format_duration(super::TIME)
            ),
            Self::Steps => write!(f, "it takes more than {STEPS} steps"),
            Self::Depth => write!(f, "it recurses too deeply"),
        }
    }
}

impl Run<'_> {
    fn step(&self) {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        let here = 0_u8;
        if self.stack.abs_diff(address(&here)) > STACK {
            resume_unwind(Box::new(Stop::Depth));
        }
        if steps > STEPS {
            resume_unwind(Box::new(Stop::Steps));
        }
        if steps.is_multiple_of(LOOK) && Instant::now() > self.until {
            resume_unwind(Box::new(Stop::Time));
        }
    }
}

pub(super) fn address(place: &u8) -> usize {
    std::ptr::from_ref(place).addr()
}

/// The definitions of the language, with steps.
pub(super) fn definitions<'s>() -> impl Iterator<Item = Def<&'s str>> {
    let range = load::parse(RANGE, |parser| parser.defs()).unwrap_or_default();
    range
        .into_iter()
        .chain(jaq_core::defs())
        .chain(jaq_std::defs())
        .chain(jaq_json::defs())
        .filter(|def| !WITHOUT.contains(&def.name))
        .map(|def: Def<&'static str>| -> Def<&'s str> { definition(def) })
}

/// The native functions of the language, without those that leave the filter.
pub(super) fn natives() -> impl Iterator<Item = Fun<Kind>> {
    let step = Native::<Kind>::new(|cv| {
        cv.0.data().step();
        box_once(Ok(cv.1))
    })
    .with_paths(|cv| {
        cv.0.data().step();
        box_once(Ok(cv.1))
    })
    .with_update(|cv, update| {
        cv.0.data().step();
        update(cv.1)
    });
    let add = Native::<Kind>::new(|mut cv| {
        let right = cv.0.pop_var();
        let left = cv.0.pop_var();
        // What is added to is changed in its place where nobody else has it.
        drop(cv);
        bome(values::sum(left, right))
    });
    let multiply = Native::<Kind>::new(|mut cv| {
        let right = cv.0.pop_var();
        bome(values::product(cv.0.pop_var(), right))
    });
    let text = Native::<Kind>::new(|cv| bome(values::text(cv.1)));
    let to_json = Native::<Kind>::new(|cv| bome(values::json(&cv.1)));
    let from_json = Native::<Kind>::new(|cv| bome(values::parsed(&cv.1)));
    jaq_core::funs()
        .chain(jaq_std::funs())
        .chain(jaq_json::funs())
        .filter(|(name, ..)| !LEFT_OUT.contains(name))
        .chain([
            (STEP, v(0), step),
            (ADD, v(2), add),
            (MUL, v(2), multiply),
            (TEXT, v(0), text),
            ("tojson", v(0), to_json),
            ("fromjson", v(0), from_json),
        ])
}

/// The body of a definition, with a step before it.
pub(super) fn body(term: Term<&str>) -> Term<&str> {
    pipe(Term::Call(STEP, Vec::new()), guarded(term))
}

fn definition(def: Def<&str>) -> Def<&str> {
    Def {
        body: body(def.body),
        ..def
    }
}

fn guarded(term: Term<&str>) -> Term<&str> {
    match term {
        Term::Id | Term::Num(_) | Term::Var(_) | Term::Break(_) => term,
        Term::Recurse => stepped(Term::Recurse),
        Term::Str(format, parts) => interpolated(format, parts),
        Term::Arr(inner) => Term::Arr(inner.map(boxed)),
        Term::Obj(members) => Term::Obj(
            members
                .into_iter()
                .map(|(key, value)| (guarded(key), value.map(guarded)))
                .collect(),
        ),
        Term::Neg(inner) => Term::Neg(boxed(inner)),
        Term::BinOp(left, BinaryOp::Math(math @ (Math::Add | Math::Mul)), right) => {
            Term::Call(bounded(math), vec![guarded(*left), guarded(*right)])
        }
        // As the language defines it: `r as $x | l |= . * $x`.
        Term::BinOp(left, BinaryOp::UpdateMath(math @ (Math::Add | Math::Mul)), right) => {
            let made = Term::Call(bounded(math), vec![Term::Id, Term::Var(OPERAND)]);
            let update = Term::BinOp(boxed(left), BinaryOp::Update, Box::new(made));
            let bind = BinaryOp::Pipe(Some(Pattern::Var(OPERAND)));
            Term::BinOp(boxed(right), bind, Box::new(update))
        }
        Term::BinOp(left, BinaryOp::Pipe(Some(names)), right) => {
            Term::BinOp(boxed(left), BinaryOp::Pipe(Some(pattern(names))), boxed(right))
        }
        Term::BinOp(left, operator, right) => Term::BinOp(boxed(left), operator, boxed(right)),
        Term::Label(name, inner) => Term::Label(name, boxed(inner)),
        Term::Fold(name, values, names, rest) => Term::Fold(
            name,
            boxed(values),
            pattern(names),
            rest.into_iter().map(guarded).collect(),
        ),
        Term::TryCatch(inner, catch) => Term::TryCatch(boxed(inner), catch.map(boxed)),
        Term::IfThenElse(branches, otherwise) => Term::IfThenElse(
            branches
                .into_iter()
                .map(|(condition, then)| (guarded(condition), guarded(then)))
                .collect(),
            otherwise.map(boxed),
        ),
        Term::Def(defs, inner) => Term::Def(defs.into_iter().map(definition).collect(), boxed(inner)),
        Term::Call(name, arguments) => Term::Call(name, arguments.into_iter().map(guarded).collect()),
        Term::Path(inner, Path(parts)) => {
            let iterates = parts.iter().any(|(part, _)| matches!(part, Part::Range(None, None)));
            let parts = parts
                .into_iter()
                .map(|(part, optional)| {
                    let part = match part {
                        Part::Index(index) => Part::Index(guarded(index)),
                        Part::Range(from, until) => Part::Range(from.map(guarded), until.map(guarded)),
                    };
                    (part, optional)
                })
                .collect();
            let path = Term::Path(boxed(inner), Path(parts));
            if iterates { stepped(path) } else { path }
        }
    }
}

/// The native that does the same and keeps what it makes within bounds.
fn bounded(math: Math) -> &'static str {
    match math {
        Math::Add => ADD,
        _ => MUL,
    }
}

/// A text with values in it, as a sum of its parts.
fn interpolated<'s>(format: Option<&'s str>, parts: Vec<StrPart<&'s str, Term<&'s str>>>) -> Term<&'s str> {
    if !parts.iter().any(|part| matches!(part, StrPart::Term(_))) {
        return Term::Str(format, parts);
    }
    let parts = parts.into_iter().map(|part| match part {
        StrPart::Term(term) => pipe(guarded(term), Term::Call(format.unwrap_or(TEXT), Vec::new())),
        literal => Term::Str(None, vec![literal]),
    });
    let sum = |left, right| Term::Call(ADD, vec![left, right]);
    parts.reduce(sum).unwrap_or_default()
}

fn boxed(mut term: Box<Term<&str>>) -> Box<Term<&str>> {
    *term = guarded(std::mem::take(&mut *term));
    term
}

fn pattern(names: Pattern<&str>) -> Pattern<&str> {
    match names {
        Pattern::Var(_) => names,
        Pattern::Arr(inner) => Pattern::Arr(inner.into_iter().map(pattern).collect()),
        Pattern::Obj(members) => Pattern::Obj(
            members
                .into_iter()
                .map(|(key, inner)| (guarded(key), pattern(inner)))
                .collect(),
        ),
    }
}

/// A step for each value.
fn stepped(term: Term<&str>) -> Term<&str> {
    pipe(term, Term::Call(STEP, Vec::new()))
}

fn pipe<'s>(left: Term<&'s str>, right: Term<&'s str>) -> Term<&'s str> {
    Term::BinOp(Box::new(left), BinaryOp::Pipe(None), Box::new(right))
}
