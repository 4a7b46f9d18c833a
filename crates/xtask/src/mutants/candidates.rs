//! The faults that could be planted in a source file: changed operators, literals, calls and
//! conditions, and statements that are left out. Only code that runs on the host is changed.

use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Expr, Lit, Stmt};

/// How the text of a fault takes the place of the text of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An expression has another value.
    Expression,
    /// The condition of an `if` is negated.
    Condition,
    /// A statement is left out.
    Statement,
}

/// A fault that could be planted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// How it is planted.
    pub form: Form,
    /// The bytes of the file that it replaces.
    pub range: Range<usize>,
    /// Where these begin; lines and columns count from 1.
    pub line: usize,
    pub column: usize,
    /// The text of the program there.
    pub before: String,
    /// The text with the fault, which is empty for a statement.
    pub after: String,
}

/// What a source file has.
#[derive(Debug, Default)]
pub struct Found {
    /// Its candidates, in the order in which they are met.
    pub candidates: Vec<Candidate>,
    /// The names of the modules that it declares and that have files of their own.
    pub modules: Vec<String>,
}

/// Finds the candidates of a source file. Tests are left out, and so is what is evaluated when the
/// program is compiled (constants, array lengths, constant functions), patterns, types, attributes
/// and the arguments of macros.
///
/// # Errors
/// The text is not Rust.
pub fn find(text: &str) -> syn::Result<Found> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder { text, found: Found::default() };
    finder.visit_file(&file);
    Ok(finder.found)
}

struct Finder<'a> {
    text: &'a str,
    found: Found,
}

impl Finder<'_> {
    fn text(&self, span: Span) -> &str {
        &self.text[span.byte_range()]
    }

    fn add(&mut self, form: Form, span: Span, after: String) {
        let (start, before) = (span.start(), self.text(span).to_owned());
        self.found.candidates.push(Candidate {
            form,
            range: span.byte_range(),
            line: start.line,
            column: start.column + 1,
            before,
            after,
        });
    }

    /// An operand, in parentheses unless it is one word or one call.
    fn operand(&self, operand: &Expr) -> String {
        let text = self.text(operand.span());
        match operand {
            Expr::Path(_) | Expr::Lit(_) | Expr::Paren(_) | Expr::Call(_) => text.to_owned(),
            Expr::MethodCall(_) | Expr::Field(_) | Expr::Index(_) => text.to_owned(),
            _ => format!("({text})"),
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if let Some(operator) = other_operator(&binary.op)
            && !(has_let(&binary.left) || has_let(&binary.right))
        {
            let (left, right) = (self.operand(&binary.left), self.operand(&binary.right));
            self.add(Form::Expression, binary.span(), format!("{left} {operator} {right}"));
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_lit(&mut self, literal: &'ast syn::ExprLit) {
        let after = match &literal.lit {
            Lit::Bool(value) => Some((!value.value).to_string()),
            Lit::Int(value) => value
                .base10_parse::<u128>()
                .ok()
                .and_then(|number| number.checked_add(1))
                .map(|number| format!("{number}{}", value.suffix())),
            _ => None,
        };
        if let Some(after) = after {
            self.add(Form::Expression, literal.span(), after);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let other = match call.method.to_string().as_str() {
            "min" => "max",
            "max" => "min",
            "any" => "all",
            "all" => "any",
            _ => "",
        };
        if call.args.len() == 1 && !other.is_empty() {
            let (whole, name) = (call.span(), call.method.span().byte_range());
            let range = whole.byte_range();
            let (head, tail) =
                (&self.text[range.start..name.start], &self.text[name.end..range.end]);
            self.add(Form::Expression, whole, format!("{head}{other}{tail}"));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_if(&mut self, branch: &'ast syn::ExprIf) {
        if !has_let(&branch.cond) {
            let text = self.text(branch.cond.span());
            let after = format!("!({text})");
            self.add(Form::Condition, branch.cond.span(), after);
        }
        visit::visit_expr_if(self, branch);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement {
            let called = match expression {
                Expr::Try(tried) => &*tried.expr,
                other => other,
            };
            if matches!(called, Expr::Call(_) | Expr::MethodCall(_)) {
                self.add(Form::Statement, statement.span(), String::new());
            }
        }
        visit::visit_stmt(self, statement);
    }

    // The length of a repeated array is a constant.
    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if function.sig.constness.is_none() && !is_left_out(&function.attrs) {
            self.visit_block(&function.block);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if function.sig.constness.is_none() && !is_left_out(&function.attrs) {
            self.visit_block(&function.block);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default
            && !is_left_out(&function.attrs)
        {
            self.visit_block(body);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_left_out(&item.attrs) {
            item.items.iter().for_each(|item| self.visit_impl_item(item));
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if is_left_out(&module.attrs) {
            return;
        }
        match &module.content {
            Some((_, items)) => items.iter().for_each(|item| self.visit_item(item)),
            None => self.found.modules.push(module.ident.to_string()),
        }
    }

    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_path_arguments(&mut self, _: &'ast syn::PathArguments) {}
    fn visit_angle_bracketed_generic_arguments(
        &mut self,
        _: &'ast syn::AngleBracketedGenericArguments,
    ) {
    }
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
}

/// The operator that a fault puts in the place of another.
fn other_operator(operator: &BinOp) -> Option<&'static str> {
    Some(match operator {
        BinOp::Lt(_) => "<=",
        BinOp::Le(_) => "<",
        BinOp::Gt(_) => ">=",
        BinOp::Ge(_) => ">",
        BinOp::Eq(_) => "!=",
        BinOp::Ne(_) => "==",
        BinOp::Add(_) => "-",
        BinOp::Sub(_) => "+",
        BinOp::Mul(_) => "+",
        BinOp::Div(_) => "*",
        BinOp::Rem(_) => "/",
        BinOp::And(_) => "||",
        BinOp::Or(_) => "&&",
        BinOp::Shl(_) => ">>",
        BinOp::Shr(_) => "<<",
        BinOp::AddAssign(_) => "-=",
        BinOp::SubAssign(_) => "+=",
        BinOp::MulAssign(_) => "+=",
        BinOp::DivAssign(_) => "*=",
        BinOp::RemAssign(_) => "/=",
        BinOp::ShlAssign(_) => ">>=",
        BinOp::ShrAssign(_) => "<<=",
        _ => return None,
    })
}

/// Whether a condition binds names, which must stay in scope.
fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Whether an item is a test, or code of another configuration than the tests have.
fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(|list| {
                    let words = list.tokens.to_string();
                    let mut words = words.split(|letter: char| !letter.is_alphanumeric());
                    words.any(|word| matches!(word, "test" | "doctest" | "not" | "windows"))
                })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of the body of a function, as `before -> after`.
    fn faults(body: &str) -> Vec<String> {
        let found = find(&format!("fn f() {{ {body} }}")).unwrap();
        let line = |fault: Candidate| format!("{} -> {}", fault.before, fault.after);
        found.candidates.into_iter().map(line).collect()
    }

    #[test]
    fn every_operator_has_another() {
        for (before, after) in [
            ("<", "<="),
            ("<=", "<"),
            (">", ">="),
            (">=", ">"),
            ("==", "!="),
            ("!=", "=="),
            ("+", "-"),
            ("-", "+"),
            ("*", "+"),
            ("/", "*"),
            ("%", "/"),
            ("&&", "||"),
            ("||", "&&"),
            ("<<", ">>"),
            (">>", "<<"),
            ("+=", "-="),
            ("-=", "+="),
            ("*=", "+="),
            ("/=", "*="),
            ("%=", "/="),
            ("<<=", ">>="),
            (">>=", "<<="),
        ] {
            assert_eq!(faults(&format!("a {before} b")), [format!("a {before} b -> a {after} b")]);
        }
        assert!(faults("a & b").is_empty());
    }

    #[test]
    fn operands_keep_their_places() {
        let expected = ["a || b || c -> (a || b) && c", "a || b -> a && b"];
        assert_eq!(faults("a || b || c"), expected);
        assert_eq!(faults("a as u32 >> b"), ["a as u32 >> b -> (a as u32) << b"]);
    }

    #[test]
    fn literals_calls_conditions_and_statements_are_changed() {
        assert_eq!(faults("f(true)"), ["true -> false"]);
        assert_eq!(faults("f(0x1f_u8, 1.5, \"1\")"), ["0x1f_u8 -> 32u8"]);
        assert_eq!(faults("a.min(b)"), ["a.min(b) -> a.max(b)"]);
        assert_eq!(faults("a.b().max(c).d()"), ["a.b().max(c) -> a.b().min(c)"]);
        assert_eq!(faults("a.any(|x| x)"), ["a.any(|x| x) -> a.all(|x| x)"]);
        assert_eq!(faults("a.all(x)"), ["a.all(x) -> a.any(x)"]);
        assert!(faults("a.max()").is_empty());
        assert_eq!(faults("if a { b }"), ["a -> !(a)"]);
        assert_eq!(faults("a(); b.c()?; d()"), ["a(); -> ", "b.c()?; -> "]);
        assert!(faults("let a = b(); a").is_empty());
    }

    #[test]
    fn bound_names_stay_in_scope() {
        assert_eq!(faults("if let Some(a) = b && a < c { d }"), ["a < c -> a <= c"]);
    }

    #[test]
    fn what_the_compiler_evaluates_is_left_out() {
        for body in [
            "const A: u32 = 1;",
            "static A: u32 = 1 + 2;",
            "[a; 4]",
            "let a: [u32; 4] = b;",
            "a::<4>()",
            "A::<{ 1 + 1 }>::b()",
            "const { 1 + 1 }",
            "match a { 1 => b, 2..=3 => c, _ => d }",
            "println!(\"{}\", 1 + 1)",
            "enum A { B = 1 }",
            "#[allow(a(1))] struct A;",
        ] {
            assert!(faults(body).is_empty(), "{body}");
        }
    }

    #[test]
    fn tests_and_constant_functions_are_left_out() {
        for text in [
            "#[cfg(test)] mod a { fn b() { c(1) } }",
            "#[cfg(all(test, unix))] mod a { fn b() { c(1) } }",
            "#[cfg(test)] mod a;",
            "#[test] fn a() { c(1) }",
            "#[cfg(test)] impl A { fn b() { c(1) } }",
            "impl A { #[cfg(test)] fn b() { c(1) } }",
            "impl A { const B: u32 = 1; const fn b() -> u32 { 1 } }",
            "trait A { const B: u32 = 1; fn c(d: [u8; 4]); }",
            "const fn a() -> u32 { 1 }",
            "#[cfg(not(feature = \"b\"))] fn a() { c(1) }",
            "macro_rules! a { () => { 1 + 1 } }",
        ] {
            let found = find(text).unwrap();
            assert!(found.candidates.is_empty() && found.modules.is_empty(), "{text}");
        }
    }

    #[test]
    fn modules_with_files_and_places_are_told() {
        let found = find("mod a;\npub mod b { fn c() {\n  \"é\"; d(1)\n} }").unwrap();
        assert_eq!(found.modules, ["a"]);
        let [fault] = found.candidates.as_slice() else { panic!("{:?}", found.candidates) };
        assert_eq!((fault.line, fault.column, fault.range.clone()), (3, 10, 38..39));
    }
}
