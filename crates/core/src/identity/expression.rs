//! An expression in CEL that says a name.
//!
//! **Promises.** What people may write cannot hurt the process that reads it: an expression is short, has few operators
//! and no loop, so that its depth, its time and what it makes are bounded; whatever the library does with it is an answer
//! or a sentence, never the end of a thread. The same expression over the same facts says the same.

use super::About;
use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::{Context, Env, Program, Value};
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Most bytes of an expression.
pub const LONGEST: usize = 1024;
/// Most operators, dots and brackets: a chain of them is a tree as deep.
pub const MOST_OPERATORS: usize = 24;
/// How deep brackets and choices may be nested: the parser goes down with each, on the stack of whoever asks.
pub const DEEPEST: usize = 8;

/// What an expression may name.
pub const VARIABLES: [&str; 5] = ["namespace", "policyName", "labels", "annotations", "cluster"];

/// `namespace` is a reserved word of CEL, and the interface names it all the same: the library is told another one.
const INNER: &str = "__namespace__";

/// Whether the expression can be read at all; otherwise why not.
///
/// # Errors
/// What is wrong with it, as the end of a sentence that begins with the field.
pub fn check(text: &str) -> Result<(), String> {
    guarded(|| read(text, &Arc::new(Env::stdlib())).map(drop))
}

/// Whether the expression names this variable; one that cannot be read names none.
#[must_use]
pub fn names(text: &str, variable: &str) -> bool {
    let read = guarded(|| read(text, &Arc::new(Env::stdlib())));
    read.is_ok_and(|program| program.references().variables().contains(&variable))
}

/// What the expression says of a policy.
///
/// # Errors
/// As for [`check`], and what went wrong when it was asked.
pub fn say(text: &str, about: &About<'_>) -> Result<String, String> {
    guarded(|| {
        let env = Arc::new(Env::stdlib());
        let program = read(text, &env)?;
        let mut context = Context::with_env(env);
        context.add_variable_from_value(INNER, about.namespace);
        context.add_variable_from_value("policyName", about.policy);
        context.add_variable_from_value("cluster", about.cluster.unwrap_or_default());
        context.add_variable_from_value("labels", map(about.labels));
        context.add_variable_from_value("annotations", map(about.annotations));
        match program.execute(&context) {
            Ok(Value::String(said)) => Ok(said.as_str().to_owned()),
            Ok(other) => Err(format!("says a {} and not a string", other.type_of())),
            Err(error) => Err(format!("cannot be evaluated: {}", one_line(&error.to_string()))),
        }
    })
}

fn map(of: Option<&BTreeMap<String, String>>) -> HashMap<String, String> {
    of.into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// A bug of the library costs an answer, not a process.
fn guarded<T>(ask: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(ask))
        .unwrap_or_else(|_| Err("cannot be read: write it in another way".to_owned()))
}

fn read(text: &str, env: &Arc<Env>) -> Result<Program, String> {
    if text.trim().is_empty() {
        return Err("is empty: remove it, or say a name".to_owned());
    }
    if text.len() > LONGEST {
        return Err(format!("has {} bytes, at most {LONGEST} are read", text.len()));
    }
    let signs = text.chars().filter(|c| ".+-*/%<>=!&|?:[]{}(),".contains(*c));
    let operators = signs.count() + words(text);
    if operators > MOST_OPERATORS {
        return Err(format!(
            "has {operators} operators, dots and brackets, at most {MOST_OPERATORS} are read: make it simpler"
        ));
    }
    if depth(text) > DEEPEST {
        return Err(format!(
            "nests brackets and choices (? :) deeper than {DEEPEST}: make it simpler"
        ));
    }
    if text.contains("'''") || text.contains("\"\"\"") || text.contains(INNER) {
        return Err(format!(
            "uses three quotes in a row, or {INNER}: write it in another way"
        ));
    }
    let program = env
        .compile(&spelled(text))
        .map_err(|error| format!("is not CEL: {}", one_line(&error.to_string())))?;
    if loops(program.expression()) {
        return Err("uses a loop (all, exists, exists_one, map, filter), which is not evaluated: name the label that is meant".to_owned());
    }
    let references = program.references();
    let mut unknown: Vec<&str> = references
        .variables()
        .into_iter()
        .filter(|name| *name != INNER && !VARIABLES[1..].contains(name))
        .collect();
    unknown.sort_unstable();
    if let Some(unknown) = unknown.first() {
        return Err(format!(
            "names {unknown}, which is not known: there are {}",
            VARIABLES.join(", ")
        ));
    }
    Ok(program)
}

/// The text with [`INNER`] for the variable `namespace`: not in strings and comments, and not as the name of a field.
fn spelled(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + INNER.len());
    let mut rest = text;
    // The last character before `rest` that is no space.
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let length = if c.is_ascii_alphabetic() || c == '_' {
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(rest.len())
        } else if c == '\'' || c == '"' {
            string_length(rest, c, before.eq_ignore_ascii_case(&'r'))
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else {
            c.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        out.push_str(if token == VARIABLES[0] && before != '.' {
            INNER
        } else {
            token
        });
        before = token
            .chars()
            .next_back()
            .filter(|c| !c.is_whitespace())
            .unwrap_or(before);
        rest = after;
    }
    out
}

/// Bytes of the string literal that begins here; one that does not end goes to the end.
fn string_length(text: &str, quote: char, raw: bool) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped && !raw;
    }
    text.len()
}

/// Operators that are words: every `in` at the end of a word. In `0x1in`, `1uin` and what no lexer of ours reads alike it
/// is one too; what is in quotes or ends a longer word counts with them, which only makes it more.
fn words(text: &str) -> usize {
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let all = text.match_indices("in");
    all.filter(|(at, word)| !goes_on(&text[at + word.len()..]))
        .count()
}

/// How deep a text may be nested at most: what is in quotes counts too, which only makes it more.
fn depth(text: &str) -> usize {
    let (mut open, mut choices, mut deepest) = (0usize, 0usize, 0usize);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            '?' => choices += 1,
            _ => {}
        }
        deepest = deepest.max(open + choices);
    }
    deepest
}

fn one_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = line.trim_start_matches("ERROR: <input>:");
    line.replace(INNER, VARIABLES[0]).chars().take(200).collect()
}

fn loops(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Comprehension(_) => true,
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => false,
        Expr::Call(call) => call.target.iter().any(|t| loops(t)) || call.args.iter().any(loops),
        Expr::List(list) => list.elements.iter().any(loops),
        Expr::Select(select) => loops(&select.operand),
        Expr::Map(map) => map.entries.iter().any(|entry| entry_loops(&entry.expr)),
        Expr::Struct(object) => object.entries.iter().any(|entry| entry_loops(&entry.expr)),
    }
}

fn entry_loops(entry: &EntryExpr) -> bool {
    match entry {
        EntryExpr::StructField(field) => loops(&field.value),
        EntryExpr::MapEntry(entry) => loops(&entry.key) || loops(&entry.value),
    }
}
