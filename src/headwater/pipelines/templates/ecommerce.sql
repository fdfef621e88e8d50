create table if not exists revenue_per_minute (
    minute text primary key,
    orders bigint not null,
    revenue numeric(20, 2) not null,
    largest numeric(20, 2) not null
);

create table if not exists product_sales (
    minute text not null,
    product text not null,
    units bigint not null,
    revenue numeric(20, 2) not null,
    primary key (minute, product)
);

create table if not exists funnel ( -- sessions
    minute text primary key,
    viewed bigint not null,
    carted bigint not null,
    checked_out bigint not null,
    ordered bigint not null
);

create table if not exists fraud_flags (
    card text not null,
    since text not null,
    orders bigint not null,
    countries bigint not null,
    total numeric(20, 2) not null,
    reasons text not null,
    primary key (card, since)
);
