//! placeholder until the arrays branch lands
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DType(String, u64);
impl DType {
    pub fn parse(s: &str) -> Result<Self, String> {
        let n: String = s.chars().skip(2).collect();
        Ok(DType(s.into(), n.parse().map_err(|_| "bad".to_string())?))
    }
    pub fn as_str(&self) -> &str {
        &self.0
    }
    pub fn itemsize(&self) -> u64 {
        self.1
    }
}
