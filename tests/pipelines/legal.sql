-- Queries over the tables t and u of sql_examples.py, which Spark takes; an empty line ends each.

select * from t

SELECT ID, Name FROM T

select t.* from t

select * except (amount, price) from t

select id, id + 1 as next, next * 2 as twice from t

select distinct name from t

select all name from t

select `odd name`, t.`odd name` from t

select id as `an alias`, name as `select` from t

select id x, name y from t as z

select z.id from t z

select count(*), count(distinct name), count(id, name) from t

select count(*) filter (where flag) as flagged, sum(amount) filter (where amount > 3) from t

select name, sum(amount) as total from t group by name having total > 10 order by total desc nulls last limit 10

select name, sum(amount) from t group by 1 order by 2

select name, day, sum(amount) from t group by all

select name, day, sum(amount) from t group by name, day with rollup

select name, day, sum(amount), grouping_id() from t group by cube (name, day)

select name, day, sum(amount), grouping(name) from t group by grouping sets ((name), (day), ())

select name, day, sum(amount) from t group by name, rollup (day)

select id from t limit 3 offset 2

select id from t order by all

select id from t sort by id desc

select id from t distribute by name sort by id

select id from t cluster by id

select id, row_number() over (partition by name order by at desc) as n from t

select id, sum(amount) over (order by at rows between unbounded preceding and current row) from t

select id, avg(amount) over (order by id range between 10 preceding and 10 following) from t

select sum(amount) over (order by at range between interval 1 hour preceding and current row) from t

select lag(amount, 1, 0.0) over w, lead(amount) over w from t window w as (partition by name order by at)

select first_value(name) ignore nulls over (order by id) from t

select nth_value(name, 2) over (order by id), ntile(4) over (order by id) from t

select * from (select *, rank() over (order by id) as r from t) where r = 1

select id, row_number() over (order by id) as n from t qualify n = 1

select window.start, window.end, count(*) from t group by window(at, '5 minutes')

select window(at, '10 minutes', '5 minutes') as w, count(*) from t group by w

select session_window(at, '30 minutes').start, name, count(*) from t group by session_window(at, '30 minutes'), name

select window_time(window), n from (select window, count(*) as n from t group by window(at, '1 minute'))

select transform(tags, x -> upper(x)) from t

select transform(tags, (x, i) -> concat(x, i)) from t

select filter(items, i -> i.quantity > 1) from t

select aggregate(items, 0, (acc, i) -> acc + i.quantity) from t

select aggregate(tags, '', (acc, x) -> acc || x, acc -> length(acc)) from t

select reduce(items, 0, (acc, i) -> acc + i.quantity) from t

select exists(tags, x -> x = 'a'), forall(tags, x -> x is not null) from t

select map_filter(counts, (k, v) -> v > 1), transform_values(counts, (k, v) -> v + 1) from t

select zip_with(tags, tags, (x, y) -> x || y), array_sort(tags, (l, r) -> length(l) - length(r)) from t

select map_zip_with(counts, counts, (k, a, b) -> a + b) from t

select id, item.product from t lateral view explode(items) e as item

select id, k, v from t lateral view outer explode(counts) as k, v

select id, k, v, tag from t lateral view explode(counts) m as k, v lateral view explode(tags) g as tag

select id, pos, tag from t lateral view posexplode(tags) p as pos, tag

select id, explode(tags) as tag from t

select id, posexplode(tags) as (pos, tag) from t

select id, inline(items) from t

select id, inline(items) as (p, q) from t

select stack(2, 1, 'a', 2, 'b') as (n, l) from t

select t.id, x.col from t, lateral explode(tags) as x

select t.id, tag from t, lateral explode(tags) as x(tag)

select t.id, l.n from t, lateral (select count(*) as n from u where u.id = t.id) l

select interval 1 day, interval '1' day, interval '1 2' day to hour from t

select t.id, l.rate from t left join lateral (select rate from u where u.id = t.id) l on true

select r.id, t.name from range(10) r join t on r.id = t.id

select json_tuple(name, 'a', 'b') as (a, b) from t

select * from (select name, day, amount from t) pivot (sum(amount) for name in ('a', 'b'))

select * from (select name, day, amount from t) pivot (sum(amount) as s, count(*) as n for name in ('a' as x, 'b' as y))

select * from (select id, amount, rate from t join u using (id)) unpivot (value for what in (amount, rate))

select * from (select id, amount, rate from t join u using (id)) unpivot include nulls (value for what in (amount as a, rate as r))

with x as (select id from t) select * from x

with x as (select id from t), y as (select * from x where id > 1) select * from y join x using (id)

with x (one, two) as (select id, name from t) select one, two from x

with x as (with y as (select id from t) select * from y) select * from x

select * from (with x as (select id from t) select * from x)

select * from t where id in (select id from u)

select * from t where id not in (1, 2, 3)

select * from t where (id, name) in (select id, name from u)

select * from t where exists (select 1 from u where u.id = t.id)

select * from t where not exists (select 1 from u where u.id = t.id and u.rate > t.amount)

select id, (select max(rate) from u) as top from t

select id, (select max(rate) from u where u.id = t.id) as top from t

select * from t where amount > (select avg(rate) from u)

select id from t union select id from u

select id from t union all select id from u order by id limit 3

select id from t union distinct select id from u

select id from t except select id from u

select id from t minus all select id from u

select id from t intersect select id from u

(select id from t) union all (select id from u)

select * from (values (1, 'a'), (2, 'b')) as v(n, l) join t on t.id = v.n

select * from values (1, 'a'), (2, 'b') as v(n, l), t where t.id = n

from t select id, name where id > 1

select * from (from t select id)

select * from t join u on t.id = u.id

select t.id, rate from t inner join u using (id)

select id, rate from t left outer join u using (id)

select * from t right join u on t.id = u.id and u.rate > 1

select coalesce(t.id, u.id) from t full outer join u on t.id = u.id

select t.* from t left semi join u on t.id = u.id

select * from t left anti join u on t.id = u.id

select * from t natural join u

select * from t cross join u

select a.id from t a join t b on a.id = b.id join u c on c.id = b.id

select a.id, b.name from t a, u b where a.id = b.id

select * from (t join u on t.id = u.id)

select * from t join u on t.at between u.since and u.since + interval 1 hour and t.id = u.id

select /*+ broadcast(u) */ t.id from t join u on t.id = u.id

select /*+ repartition(3, name) */ * from t

select /*+ coalesce(1), merge(t) */ id from t

select * from t tablesample (10 percent)

select * from t tablesample (5 rows)

select place.city, place.at.x, t.place.at.y from t

select place.* from t

select items[0].product, items.product, counts['a'], tags[0] from t

select element_at(tags, 1), try_element_at(counts, 'a') from t

select struct(id, name) as s, named_struct('a', id, 'b', name).a from t

select struct(id as a, name as b).b from t

select array(1, 2), map('a', 1), map_from_arrays(array('a'), array(1)) from t

select array(id, id)[1] from t

select arrays_zip(tags, tags), flatten(array(tags)), array_contains(tags, 'x'), size(tags) from t

select map_keys(counts), map_entries(counts) from t

select interval '2-3' year to month, interval '10 days', - interval 1 hour from t

select at + interval '1' hour, at - interval 30 minutes, day + 1, day - interval 1 month from t

select date '2026-01-01', timestamp '2026-01-01 00:00:00', timestamp_ntz'2026-01-01 00:00:00', X'1F' from t

select 1L, 2S, 3Y, 1.5D, 1.5F, 1.5BD, 1e3, .5, 5., 'a' 'b', r'\d', "double", true, null from t

select cast(id as string), cast(amount as decimal(10, 2)), cast(name as timestamp), try_cast(name as int) from t

select id::string, (amount * 2)::decimal(10, 2), name::date from t

select cast(null as array<struct<a: int, b: map<string, double>>>), cast('1' as interval day) from t

select cast(name as varchar(3)), cast(name as char(3)), cast(id as tinyint), cast(id as byte), cast(id as long) from t

select string(id), int(name), double(name), date(at), timestamp(day), boolean(id), decimal(id), binary(name) from t

select case when id > 1 then 'a' when id is null then 'b' else 'c' end, case id when 1 then 'x' end from t

select if(id > 1, 'a', 'b'), nvl(name, 'x'), nvl2(name, 1, 2) from t

select * from t where name like 'a%' and name not like '%b' escape '!' or name rlike '^a' and name ilike 'A%'

select * from t where name like any ('a%', 'b%') and name like all ('%c') and name not like some ('x')

select * from t where name regexp 'a+' and not flag and id between 1 and 3 and id not between 5 and 6

select * from t where name is null or name is not null or flag is true or flag is not false or flag is unknown

select * from t where id <=> 3 and id is distinct from 4 and id is not distinct from 5 and id <> 6 and id != 7

select id % 2, id div 2, id & 1, id | 2, id ^ 3, ~id, -id, +id, !flag, id << 1, id >> 1, id >>> 1, id == 1 from t

select name || 'x' || id from t

select mod(id, 2), pmod(id, 2) from t

select name collate utf8_lcase = 'a' from t

select extract(year from at), extract(dow from at), date_part('hour', at), year(at), dayofweek(at) from t

select trim(name), trim(both 'x' from name), trim(leading from name), ltrim('x', name), btrim(name) from t

select substring(name, 1, 2), substring(name from 2 for 3), substr(name, 2), left(name, 2), right(name, 2) from t

select position('a' in name), position('a', name), locate('a', name), overlay(name placing 'x' from 2 for 1) from t

select timestampadd(hour, 1, at), timestampdiff(minute, at, at), dateadd(day, 1, day), datediff(day, day), datediff(hour, at, at) from t

select date_trunc('hour', at), trunc(day, 'MM'), date_format(at, 'yyyy-MM-dd'), to_timestamp(name, 'yyyy'), to_date(name) from t

select current_date, current_timestamp, current_date(), now(), current_user(), current_timezone() from t

select unix_timestamp(at), from_unixtime(id), unix_millis(at), timestamp_millis(id), make_date(2026, 1, 2) from t

select convert_timezone('UTC', 'Europe/Berlin', cast(at as timestamp_ntz)), from_utc_timestamp(at, 'UTC') from t

select percentile_cont(0.5) within group (order by amount), mode() within group (order by name) from t

select listagg(name, ',') within group (order by id), string_agg(distinct name, ',') from t

select percentile_approx(amount, array(0.5, 0.9)), approx_percentile(amount, 0.5), median(amount), mode(name) from t

select min_by(name, at), max_by(name, struct(at, id)), any_value(name), first(name, true), last(name) ignore nulls from t

select first(name) ignore nulls, last_value(name) respect nulls from t

select collect_list(name), collect_set(name), array_agg(name), approx_count_distinct(name, 0.01), count_if(flag) from t

select bool_or(flag), every(flag), some(flag), any(flag), bit_and(id), bit_xor(id), stddev(amount), corr(amount, id) from t

select max(struct(at, id)).id, regr_slope(amount, id), hll_sketch_estimate(hll_sketch_agg(id)) from t

select from_json(name, 'a int, b string').a, to_json(struct(id)), get_json_object(name, '$.a'), schema_of_json('{}') from t

select from_csv(name, 'a int').a, parse_json(name):a.b[0]::int, variant_get(parse_json(name), '$.a', 'int') from t

select regexp_extract(name, '(a)', 1), regexp_replace(name, 'a', 'b'), split(name, ','), split_part(name, ',', 1) from t

select concat_ws(',', tags), format_string('%s', id), format_number(amount, 2), lpad(name, 3, '0'), initcap(name) from t

select md5(name), sha2(name, 256), crc32(raw), hash(id), xxhash64(id), base64(raw), unbase64(name), hex(raw), uuid() from t

select greatest(1, id), least(1, id), ceil(amount), floor(amount, 1), round(amount, 2), bround(amount), sign(id), rand() from t

select cast(raw as string), decode(raw, 'utf-8'), encode(name, 'utf-8'), octet_length(raw), is_valid_utf8(name) from t

select sequence(1, 3), explode(sequence(day, day + 3, interval 1 day)) from t

select try_divide(id, 0), try_add(id, 1), nullif(id, 0), zeroifnull(id), ifnull(id, 1), coalesce(id, 2), equal_null(id, 1) from t

select array_sort(tags), sort_array(tags, false), slice(tags, 1, 2), array_join(tags, ','), array_distinct(tags) from t

select typeof(id), version(), current_catalog(), current_schema(), raise_error('no') from t

select width_bucket(amount, 0, 10, 5), conv('a', 16, 10), bin(id), factorial(3), cbrt(8), log(2, 8), power(2, 3) from t

select date_diff(day, day), add_months(day, 1), last_day(day), next_day(day, 'MON'), months_between(day, day) from t

select make_interval(0, 0, 0, 1), make_dt_interval(1, 2), make_ym_interval(1, 2) from t

select name as value, id as key, at as timestamp, day as date, amount as sum, flag as window from t

select id as year, name as user, id as `order`, id as end_, id as first, id as last, id as offset, id as hour from t

select value.id from (select struct(id) as value from t)

select timestamp, date from (select at as timestamp, day as date from t)

select t.id from t -- a comment
where id > 1 /* another
one */ and name = 'x -- y'

select id from t;

select 1 as one, t.* from t

select * from t where at >= current_timestamp() - interval 1 day

select id, name from t where array_contains(array('a', 'b'), name)

select count(1) as n, current_timestamp as now from t

select transform(id, name) using 'cat' as (x, y) from t

from t |> where id > 1 |> select id, name

from t |> aggregate sum(amount) as total group by name |> order by total desc |> limit 3

from t |> extend id + 1 as next |> set name = 'x' |> drop amount |> as z |> select z.next

table t

select * from t where id = (select 1)

select named_struct('a', 1).a + id, (id, name) as pair, (struct(id)).id from t

select id from t where name = 'it''s' or name = "a" or name = 'a\'b'

select a.b.city from (select struct(place as b) as a from t)

select max(amount) - min(amount) as spread, sum(amount) / count(*) as mean from t group by name having count(*) > 1

select id, lower(name) as name from t group by id, lower(name)

select u.since from t join u on t.id = u.id where u.since is not null

select identifier('id') from t
