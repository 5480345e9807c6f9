# Traces a victim from its barrier to its end; prints its totals and memtrace's report, one line each.
mkfifo /tmp/go
/victim/exact </tmp/go >/tmp/totals &
victim=$!
exec 3>/tmp/go
until grep -q ready /tmp/totals; do sleep 0.1; done
memtrace --pid $victim -o /tmp/report.json 2>/tmp/messages &
tracer=$!
until grep -q attached /tmp/messages; do
    kill -0 $tracer 2>/dev/null || { cat /tmp/messages; exit 1; }
    sleep 0.1
done
echo go >&3
until grep -q '}' /tmp/totals; do sleep 0.1; done
kill -INT $tracer
wait $tracer
code=$?
echo go >&3
wait $victim
echo "totals $(grep '}' /tmp/totals)"
echo "report $(tr -d '\n' </tmp/report.json)"
cat /tmp/messages
exit $code
