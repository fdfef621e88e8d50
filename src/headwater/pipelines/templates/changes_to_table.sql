create table if not exists customers (
    id bigint primary key,
    name text,
    email text,
    city text,
    changed_at text not null,
    version bigint not null -- the offset of the change
);
