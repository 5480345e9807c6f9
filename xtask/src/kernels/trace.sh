# Traces a victim of a guest, from its barrier to its end, and prints its books and memtrace's report, each in a line.
mkfifo /tmp/go
/victim/exact </tmp/go >/tmp/books &
victim=$!
exec 3>/tmp/go
until grep -q ready /tmp/books; do sleep 0.1; done
memtrace --pid $victim -o /tmp/report.json 2>/tmp/told &
tracer=$!
until grep -q attached /tmp/told; do
    kill -0 $tracer 2>/dev/null || { cat /tmp/told; exit 1; }
    sleep 0.1
done
echo go >&3
until grep -q '}' /tmp/books; do sleep 0.1; done
kill -INT $tracer
wait $tracer
code=$?
echo go >&3
wait $victim
echo "books $(grep '}' /tmp/books)"
echo "report $(tr -d '\n' </tmp/report.json)"
cat /tmp/told
exit $code
