//! The macro that makes the enum [`Op`](super::Op) and its functions from the table of operations.
//! The names in its expansion are those that `table.rs` imports.

macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        $name:ident
        $(( $($field:ident: $ty:ty $(where $limit:expr)?),* ))?
        $({
            $($(#[$named_doc:meta])* $named:ident: $named_ty:ty $(where $named_limit:expr)?),* $(,)?
        })?
        => $text:literal,
        ( $($operand:expr),* ) -> ( $($result:expr),* ),
        $effect:expr,
        $threads:expr
        $(, $uniformity:expr)?;
    )*) => {
        /// An operation and its attributes. The types under each are those of its operands and
        /// results.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Op {$(
            $(#[$doc])*
            ///
            #[doc = concat!("`", stringify!(($($operand),*) -> ($($result),*)), "`")]
            $name
            $(( $($ty),* ))?
            $({ $($(#[$named_doc])* $named: $named_ty),* })?,
        )*}

        /// The first word of each operation in the text form, in the order of the table.
        pub(crate) const TEXTS: &[&str] = &[$($text),*];

        /// Reads the attributes of each operation, in the order of the table.
        pub(crate) fn readers<S: Source>() -> [fn(&mut S) -> Option<Op>; TEXTS.len()] {
            #[allow(unused_variables)]
            [$(
                |source| Some(Op::$name
                    $(( $(Attribute::read(stringify!($field), source)?),* ))?
                    $({ $($named: Attribute::read(stringify!($named), source)?),* })?
                ),
            )*]
        }

        impl Op {
            /// The operation in the text form.
            pub(crate) fn form(&self) -> Form {
                let mut form = Form::default();
                match self {$(
                    Op::$name $(( $($field),* ))? $({ $($named),* })? => {
                        form.words.extend((!$text.is_empty()).then_some($text.into()));
                        $($($field.write(stringify!($field), &mut form);)*)?
                        $($($named.write(stringify!($named), &mut form);)*)?
                    }
                )*}
                form
            }

            /// The types of its operands and results.
            #[allow(unused_variables, unused_mut)]
            pub(crate) fn signature(&self) -> Signature {
                match self {$(
                    Op::$name $(( $($field),* ))? $({ $($named),* })? => Signature {
                        operands: {
                            let mut slots = vec![];
                            $(Slots::add_to($operand, &mut slots);)*
                            slots
                        },
                        results: {
                            let mut slots = vec![];
                            $(Slots::add_to($result, &mut slots);)*
                            slots
                        },
                    },
                )*}
            }
        }

        #[allow(unused_variables)]
        pub(super) fn effect(op: &Op) -> Effect {
            match op {$(
                Op::$name $(( $($field),* ))? $({ $($named),* })? => $effect,
            )*}
        }

        #[allow(unused_variables)]
        pub(super) fn executed_by(op: &Op) -> Threads {
            match op {$(
                Op::$name $(( $($field),* ))? $({ $($named),* })? => $threads,
            )*}
        }

        /// The last entry of the row.
        #[allow(unused_variables, unreachable_code)]
        pub(super) fn uniformity(op: &Op) -> Option<Uniformity> {
            match op {$(
                Op::$name $(( $($field),* ))? $({ $($named),* })? => {
                    $(return Some($uniformity);)?
                    None
                }
            )*}
        }

        #[allow(unused_variables)]
        pub(super) fn check_attributes(op: &Op, errors: &mut Errors) {
            match op {$(
                Op::$name $(( $($field),* ))? $({ $($named),* })? => {
                    $($($(Limit::check(&$limit, stringify!($field), $field, errors);)?)*)?
                    $($($(Limit::check(&$named_limit, stringify!($named), $named, errors);)?)*)?
                }
            )*}
        }
    };
}

pub(super) use operations;
