//! What jaq is given, and what keeps a filter from running for ever: each definition and each iteration takes a step, and a
//! step looks at the clock, the count and the stack. A stop unwinds, because the language can catch errors.

use std::{cell::Cell, fmt, panic::resume_unwind};

use jaq_core::{
    DataT, Error, Lut, Native, ValR,
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
use jaq_json::{Num, Val};
use tokio::time::Instant;

use super::{MAX_OUTPUT, read};

/// Definitions entered and values iterated over.
const STEPS: u64 = 4_000_000;
/// Steps between two looks at the clock.
const LOOK: u64 = 64;
/// How much of the stack recursion may use; `pool` gives twice that.
const STACK: usize = super::pool::STACK / 2;

/// Natives that leave the filter, and those that are replaced here.
const LEFT_OUT: [&str; 6] = ["halt", "env", "debug_empty", "stderr_empty", "fromjson", "range"];
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
const MUL: &str = "!mul";
const FACTOR: &str = "$!factor";

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
    let multiply = Native::<Kind>::new(|mut cv| {
        let right = cv.0.pop_var();
        bome(product(cv.0.pop_var(), right))
    });
    let from_json = Native::<Kind>::new(|cv| bome(parsed(&cv.1)));
    jaq_core::funs()
        .chain(jaq_std::funs())
        .chain(jaq_json::funs())
        .filter(|(name, ..)| !LEFT_OUT.contains(name))
        .chain([(STEP, v(0), step), (MUL, v(2), multiply), ("fromjson", v(0), from_json)])
}

/// The body of a definition, with a step before it.
pub(super) fn body(term: Term<&str>) -> Term<&str> {
    pipe(Term::Call(STEP, Vec::new()), guarded(term))
}

fn definition<'s>(def: Def<&'s str>) -> Def<&'s str> {
    Def {
        body: body(def.body),
        ..def
    }
}

fn guarded<'s>(term: Term<&'s str>) -> Term<&'s str> {
    match term {
        Term::Id | Term::Num(_) | Term::Var(_) | Term::Break(_) => term,
        Term::Recurse => stepped(Term::Recurse),
        Term::Str(format, parts) => Term::Str(
            format,
            parts
                .into_iter()
                .map(|part| match part {
                    StrPart::Term(term) => StrPart::Term(guarded(term)),
                    other => other,
                })
                .collect(),
        ),
        Term::Arr(inner) => Term::Arr(inner.map(boxed)),
        Term::Obj(members) => Term::Obj(
            members
                .into_iter()
                .map(|(key, value)| (guarded(key), value.map(guarded)))
                .collect(),
        ),
        Term::Neg(inner) => Term::Neg(boxed(inner)),
        Term::BinOp(left, BinaryOp::Math(Math::Mul), right) => Term::Call(MUL, vec![guarded(*left), guarded(*right)]),
        // As the language defines it: `r as $x | l |= . * $x`.
        Term::BinOp(left, BinaryOp::UpdateMath(Math::Mul), right) => {
            let product = Term::Call(MUL, vec![Term::Id, Term::Var(FACTOR)]);
            let update = Term::BinOp(boxed(left), BinaryOp::Update, Box::new(product));
            let bind = BinaryOp::Pipe(Some(Pattern::Var(FACTOR)));
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

fn boxed<'s>(term: Box<Term<&'s str>>) -> Box<Term<&'s str>> {
    Box::new(guarded(*term))
}

fn pattern<'s>(names: Pattern<&'s str>) -> Pattern<&'s str> {
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

/// `"x" * 1000000000` would take the memory of the machine, and either side may come from the payload.
fn product(left: Val, right: Val) -> ValR<Val> {
    let too_long = match (&left, &right) {
        (Val::TStr(text) | Val::BStr(text), Val::Num(times)) | (Val::Num(times), Val::TStr(text) | Val::BStr(text)) => {
            match times {
                Num::Int(times) => {
                    usize::try_from(*times).is_ok_and(|times| text.len().saturating_mul(times) > MAX_OUTPUT)
                }
                Num::BigInt(_) => !text.is_empty(),
                _ => false,
            }
        }
        _ => false,
    };
    if too_long {
        return Err(Error::str("a string is repeated too often"));
    }
    left * right
}

/// One value, strict JSON, with the limits of a payload.
fn parsed(value: &Val) -> ValR<Val> {
    match value {
        Val::TStr(text) | Val::BStr(text) => {
            read(text).map_err(|error| Error::str(format_args!("a text is not JSON: {error}")))
        }
        _ => Err(Error::str("only a text can be read as JSON")),
    }
}
