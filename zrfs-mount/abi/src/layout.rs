//! Structures as bytes: fields one after the other, without gaps.

/// What can be a field.
pub trait Value: Sized + Copy {
    /// Its bytes.
    const BYTES: usize;
    /// What its place is a multiple of.
    const ALIGN: usize;
    /// Writes it to exactly [`BYTES`](Value::BYTES) bytes.
    fn put(&self, to: &mut [u8]);
    /// Reads it from so many; `None` if it can't be.
    fn get(from: &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Value for $type {
            const BYTES: usize = size_of::<$type>();
            const ALIGN: usize = size_of::<$type>();

            fn put(&self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_ne_bytes());
            }

            fn get(from: &[u8]) -> Option<Self> {
                from.try_into().ok().map(<$type>::from_ne_bytes)
            }
        }
    )*};
}

numbers! { u8 u32 u64 }

impl<const N: usize> Value for [u8; N] {
    const BYTES: usize = N;
    const ALIGN: usize = 1;

    fn put(&self, to: &mut [u8]) {
        to.copy_from_slice(self);
    }

    fn get(from: &[u8]) -> Option<Self> {
        from.try_into().ok()
    }
}

impl<const N: usize> Value for [u64; N] {
    const BYTES: usize = 8 * N;
    const ALIGN: usize = 8;

    fn put(&self, to: &mut [u8]) {
        for (to, number) in to.chunks_exact_mut(8).zip(self) {
            number.put(to);
        }
    }

    fn get(from: &[u8]) -> Option<Self> {
        let mut all = [0; N];
        for (number, from) in all.iter_mut().zip(from.chunks_exact(8)) {
            *number = u64::get(from)?;
        }
        (from.len() == Self::BYTES).then_some(all)
    }
}

/// Padding of `N` bytes, which must be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Zero<const N: usize>;

impl<const N: usize> Value for Zero<N> {
    const BYTES: usize = N;
    const ALIGN: usize = 1;

    fn put(&self, to: &mut [u8]) {
        to.fill(0);
    }

    fn get(from: &[u8]) -> Option<Self> {
        (from.len() == N && from.iter().all(|&byte| byte == 0)).then_some(Zero)
    }
}

/// Whether fields of these bytes and alignments, one after the other, make so many bytes without gaps.
pub(crate) const fn fits(fields: &[(&str, usize, usize)], bytes: usize) -> bool {
    let (mut at, mut k) = (0, 0);
    while k < fields.len() {
        let (_, size, align) = fields[k];
        if at % align != 0 {
            return false;
        }
        at += size;
        k += 1;
    }
    at == bytes && bytes.is_multiple_of(8)
}

/// Makes a structure with its bytes. The layout is checked when it is compiled.
macro_rules! layout {
    ($(#[$doc:meta])* pub struct $name:ident = $bytes:literal {
        $($(#[$field_doc:meta])* pub $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            /// Bytes of the structure.
            pub const BYTES: usize = $bytes;
            /// Name, bytes and alignment of each field, one after the other.
            pub const FIELDS: &'static [(&'static str, usize, usize)] =
                &[$((stringify!($field), <$type as $crate::Value>::BYTES, <$type as $crate::Value>::ALIGN)),*];

            /// Its bytes.
            pub fn encode(&self) -> [u8; $bytes] {
                const { assert!($crate::layout::fits($name::FIELDS, $bytes)) };
                let mut bytes = [0; $bytes];
                let rest = &mut bytes[..];
                $(
                    let (place, rest) = rest.split_at_mut(<$type as $crate::Value>::BYTES);
                    $crate::Value::put(&self.$field, place);
                )*
                debug_assert!(rest.is_empty());
                bytes
            }

            /// The structure of these bytes; `None` if padding is not zero.
            pub fn decode(bytes: &[u8; $bytes]) -> Option<Self> {
                let rest = &bytes[..];
                $(
                    let (place, rest) = rest.split_at(<$type as $crate::Value>::BYTES);
                    let $field = <$type as $crate::Value>::get(place)?;
                )*
                debug_assert!(rest.is_empty());
                Some($name { $($field),* })
            }

            /// The same of the front of longer bytes; `None` also if they are too few.
            pub fn decode_front(bytes: &[u8]) -> Option<Self> {
                Self::decode(bytes.first_chunk()?)
            }
        }

        impl $crate::Value for $name {
            const BYTES: usize = $bytes;
            const ALIGN: usize = 8;

            fn put(&self, to: &mut [u8]) {
                to.copy_from_slice(&self.encode());
            }

            fn get(from: &[u8]) -> Option<Self> {
                Self::decode(from.try_into().ok()?)
            }
        }
    };
}
