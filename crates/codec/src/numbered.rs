//! Kinds that have a number on disk and a name: each is listed once.

/// Makes an enum of its rows, `Kind = NUMBER "name"`. The numbers are in order, from 0.
macro_rules! numbered {
    ($(#[$doc:meta])* pub enum $type:ident { $($(#[$kind_doc:meta])* $kind:ident = $number:literal $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $type {
            $($(#[$kind_doc])* $kind = $number,)*
        }

        impl $type {
            /// All kinds, each at the index that is its number on disk.
            pub const ALL: [$type; [$($number),*].len()] = [$($type::$kind),*];

            /// The kind with this number on disk.
            pub fn from_u8(number: u8) -> Option<$type> {
                $type::ALL.get(usize::from(number)).copied()
            }

            /// Its name: as zdb prints it, and as tables on disk are called by it.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$kind => $name,)*
                }
            }
        }
    };
}

pub(crate) use numbered;
