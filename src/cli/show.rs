//! placeholder
use zrfs::format::dtype::DType;
pub(super) fn array(_d: &DType, _s: &[u64], b: &[u8]) -> String {
    format!("{b:?}")
}
