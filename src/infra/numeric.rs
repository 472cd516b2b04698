//! Exact decimals of our own in columns of type numeric.

/// Reads and writes types as `numeric`, by way of their conversions from and to `Decimal`.
macro_rules! numeric {
    ($($name:ident),+) => {$(
        impl sqlx::Type<sqlx::Postgres> for $name {
            fn type_info() -> sqlx::postgres::PgTypeInfo {
                <rust_decimal::Decimal as sqlx::Type<sqlx::Postgres>>::type_info()
            }
        }

        impl sqlx::postgres::PgHasArrayType for $name {
            fn array_type_info() -> sqlx::postgres::PgTypeInfo {
                <rust_decimal::Decimal as sqlx::postgres::PgHasArrayType>::array_type_info()
            }
        }

        impl sqlx::Encode<'_, sqlx::Postgres> for $name {
            fn encode_by_ref(
                &self,
                buf: &mut sqlx::postgres::PgArgumentBuffer,
            ) -> Result<sqlx::encode::IsNull, sqlx::error::BoxDynError> {
                sqlx::Encode::<sqlx::Postgres>::encode(rust_decimal::Decimal::from(*self), buf)
            }
        }

        impl<'r> sqlx::Decode<'r, sqlx::Postgres> for $name {
            fn decode(value: sqlx::postgres::PgValueRef<'r>) -> Result<Self, sqlx::error::BoxDynError> {
                Ok(<rust_decimal::Decimal as sqlx::Decode<sqlx::Postgres>>::decode(value)?.try_into()?)
            }
        }
    )+};
}

pub(crate) use numeric;
